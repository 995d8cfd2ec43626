//! `tenure ls`, `show`, `acquire`, `renew` and `release`, as a user types them, on a real Redis.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use serde_json::Value;
use tenure_testkit::Server;

fn tenure(server: &Server, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.env("TENURE_URL", server.url()).args(arguments).output().unwrap()
}

/// What a command that must succeed printed.
fn said(server: &Server, arguments: &[&str]) -> String {
    let output = tenure(server, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn code(server: &Server, arguments: &[&str]) -> Option<i32> {
    tenure(server, arguments).status.code()
}

fn json(server: &Server, arguments: &[&str]) -> Value {
    serde_json::from_str(&said(server, arguments)).unwrap()
}

/// R29: who holds what, for people and for programs.
#[test]
fn locks_are_listed_and_shown() {
    let server = Server::start();
    assert_eq!(json(&server, &["ls", "--json"])["locks"], Value::Array(Vec::new()));
    said(&server, &["acquire", "--note", "migration 7", "deploy/a"]);
    said(&server, &["acquire", "--limit", "3", "deploy/b"]);
    said(&server, &["acquire", "other"]);
    let list = said(&server, &["ls", "deploy/"]);
    let lines: Vec<_> = list.lines().collect();
    assert_eq!(lines.len(), 3, "{list}");
    assert!(lines[0].contains("NAME") && lines[0].contains("LEASE LEFT"), "{list}");
    assert!(lines[1].contains("deploy/a") && lines[1].contains("(migration 7)"), "{list}");
    assert!(lines[2].contains("deploy/b") && lines[2].contains("semaphore"), "{list}");

    let lock = json(&server, &["show", "--json", "deploy/a"]);
    assert_eq!((&lock["name"], &lock["kind"]), (&"deploy/a".into(), &"mutex".into()));
    let holder = &lock["holders"][0];
    assert_eq!(holder["about"]["note"], "migration 7");
    assert!(holder["fence"].as_u64().unwrap() > 1_700_000_000_000_000);
    assert!((1..=30_000).contains(&holder["lease_left_ms"].as_u64().unwrap()), "{holder}");
    let shown = said(&server, &["show", "deploy/a"]);
    assert!(shown.contains(holder["owner"].as_str().unwrap()), "{shown}");
    assert_eq!(said(&server, &["show", "nothing"]), "nothing: free\n");
}

/// Names and notes of others are hostile text.
#[test]
fn hostile_names_do_nothing_to_a_terminal() {
    let server = Server::start();
    let (name, note) = ("x\u{1b}[2J\u{202e}\ny", "a\r\u{7}b");
    said(&server, &["acquire", "--note", note, name]);
    for told in [said(&server, &["ls"]), said(&server, &["show", name])] {
        let is_tame = |c: char| c == '\n' || !c.is_control() && c != '\u{202e}';
        assert!(told.chars().all(is_tame), "{told:?}");
    }
    let list = json(&server, &["ls", "--json"]);
    assert_eq!(list["locks"][0]["name"], name, "programs get it as it is");
}

/// R28: a lock that outlives the command, by its handle.
#[test]
fn a_handle_renews_and_releases() {
    let server = Server::start();
    let handle = said(&server, &["acquire", "--lease", "20s", "x"]);
    let handle = handle.trim();
    assert_eq!(code(&server, &["acquire", "-n", "x"]), Some(75));
    assert_eq!(code(&server, &["acquire", "-w", "50ms", "-E", "9", "x"]), Some(9));
    assert_eq!(code(&server, &["renew", handle]), Some(0));
    assert_eq!(code(&server, &["release", handle]), Some(0));
    assert_eq!(code(&server, &["release", handle]), Some(76), "not held any more");
    assert_eq!(code(&server, &["renew", handle]), Some(76));
    assert_eq!(code(&server, &["release", "no handle"]), Some(64));
    assert_eq!(code(&server, &["release"]), Some(64));
}

/// R18: somebody else's lock is taken away with a reason, by name, and on record.
#[test]
fn a_forced_release_is_confirmed_and_recorded() {
    let server = Server::start();
    let handle = said(&server, &["acquire", "x"]);
    let owner = json(&server, &["show", "--json", "x"])["holders"][0]["owner"].clone();
    let owner = owner.as_str().unwrap();
    assert_eq!(code(&server, &["release", "--force", "x"]), Some(64), "a reason is needed");
    let force = ["release", "--force", "x", "--reason", "it hung"];
    assert_eq!(code(&server, &force), Some(64), "nobody has confirmed it");
    let other = "0".repeat(32);
    assert_eq!(code(&server, &[&force[..], &["--yes", "--owner", &other]].concat()), Some(75));
    assert_eq!(code(&server, &["renew", handle.trim()]), Some(0), "nothing was done so far");
    let taken = said(&server, &[&force[..], &["--yes", "--owner", owner]].concat());
    assert_eq!(taken.trim(), owner);
    assert_eq!(code(&server, &["renew", handle.trim()]), Some(76));
    let forced = json(&server, &["show", "--json", "x"])["forced"].clone();
    assert_eq!((&forced["reason"], &forced["owners"][0]), (&"it hung".into(), &owner.into()));
    assert!(said(&server, &["show", "x"]).contains("release forced"));
}

/// A server that is not there is 69, with a sentence and without the password.
#[test]
fn a_store_that_is_away_is_told() {
    for arguments in [&["ls"][..], &["show", "x"], &["acquire", "x"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        let output = command.args(arguments).args(["--url", "redis://:secret@127.0.0.1:1"]);
        let output = output.output().unwrap();
        assert_eq!(output.status.code(), Some(69), "{arguments:?}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains("127.0.0.1:1") && !told.contains("secret"), "{told}");
    }
}

/// R29: changes are told as they come.
#[test]
fn changes_are_followed() {
    use std::io::{BufRead, BufReader};
    let server = Server::start();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.env("TENURE_URL", server.url()).args(["watch", "--interval", "20ms", "jobs/"]);
    let mut watching = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let handle = said(&server, &["acquire", "--note", "run 7", "jobs/a"]);
    let line = lines.next().unwrap().unwrap();
    assert!(line.starts_with("jobs/a: held by ") && line.contains("run 7"), "{line}");
    said(&server, &["acquire", "other"]);
    said(&server, &["release", handle.trim()]);
    assert_eq!(lines.next().unwrap().unwrap(), "jobs/a: free");
    watching.kill().unwrap();
    watching.wait().unwrap();
}

#[test]
fn shells_and_readers_get_their_paper() {
    let server = Server::start();
    for shell in ["bash", "zsh", "fish"] {
        assert!(said(&server, &["completions", shell]).contains("conflict-exit-code"), "{shell}");
    }
    assert!(said(&server, &["man"]).contains(".TH"));
    assert!(said(&server, &["man", "run"]).contains("kill\\-after"));
    assert_eq!(code(&server, &["man", "nothing"]), Some(64));
}

/// R29: what is wrong with a server, and what to do about it.
#[test]
fn the_doctor_finds_what_is_wrong() {
    let server = Server::start();
    let healthy = json(&server, &["doctor", "--json"]);
    let finding = |findings: &Value, topic: &str| {
        let findings = findings["findings"].as_array().unwrap();
        findings.iter().find(|it| it["topic"] == topic).unwrap().clone()
    };
    assert_eq!(finding(&healthy, "eviction")["severity"], "fine", "{healthy}");
    assert_eq!(finding(&healthy, "persistence")["severity"], "warning", "{healthy}");
    let mut plain = server.connect().unwrap();
    for setting in [["maxmemory-policy", "allkeys-lru"], ["maxmemory", "100mb"]] {
        plain.command(&["CONFIG", "SET", setting[0], setting[1]]).unwrap();
    }
    let ill = tenure(&server, &["doctor"]);
    assert_eq!(ill.status.code(), Some(1));
    let told = String::from_utf8(ill.stdout).unwrap();
    assert!(told.contains("problem  eviction") && told.contains("noeviction"), "{told}");
    plain.command(&["ACL", "SETUSER", "default", "-evalsha"]).unwrap();
    assert_eq!(code(&server, &["doctor"]), Some(69), "a user who may not run scripts");
}
