//! The clients of the documentation: Python and Node, each in thirty lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use tenure::blocking::block_on;

use crate::fixture::Fixture;

fn run(fixture: &Fixture, program: &str, file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(file);
    let lines = std::fs::read_to_string(&path).unwrap().lines().count();
    assert!(lines <= 31, "{file} has {lines} lines");
    let mut command = Command::new(program);
    command.arg(&path).arg("orders/42 ü");
    command.env("TENURE_SERVER", format!("http://{}", fixture.address));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}"));
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let fence = line.trim().strip_prefix("held with fence ").expect(&line).to_owned();
    let held = block_on(fixture.tenure.lock("orders/42 ü").inspect()).unwrap();
    assert_eq!(held.holders[0].fence.to_string(), fence);
    assert_eq!(held.holders[0].about.note.as_deref(), Some(file));
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "released\n");
    assert!(child.wait().unwrap().success());
    assert_eq!(fixture.holders("orders/42 ü"), 0);
}

#[test]
fn the_client_in_python_works() {
    run(&Fixture::redis(), "python3", "client.py");
}

#[test]
fn the_client_in_node_works() {
    run(&Fixture::redis(), "node", "client.mjs");
}

#[test]
fn curl_works_as_documented() {
    let fixture = Fixture::redis();
    let url = format!("http://{}/v1/locks/deploy/acquire", fixture.address);
    let output = Command::new("curl").args(["-sS", "-X", "POST", &url]).output().unwrap();
    let granted: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(fixture.holders("deploy"), 1);
    let body = json!({ "handle": granted["handle"] }).to_string();
    let url = format!("http://{}/v1/locks/deploy/release", fixture.address);
    let output = Command::new("curl").args(["-sS", "--fail", "-d", &body, &url]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fixture.holders("deploy"), 0);
}
