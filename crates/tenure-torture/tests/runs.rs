//! Runs of the program: short ones always, and every topology with `cargo xtask test --long`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tenure-torture");

fn torture(engine: &str, seconds: u32, folder: &Path) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--engine", engine, "--seconds", &seconds.to_string(), "--history"]);
    command.arg(folder).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn assert_survives(engine: &str, seconds: u32) {
    let folder = tempfile::tempdir().unwrap();
    let output = torture(engine, seconds, folder.path());
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("violations            0"), "{}", text(&output));
    // The history is judged in the same way once more.
    let again = Command::new(PROGRAM).arg("check").arg(folder.path()).output().unwrap();
    assert!(again.status.success(), "{}", text(&again));
    // And a history with a wrong fence in it is not.
    let wrong = "section 9999 0 18000000000000 1 18000000000001 5 18000000000002 accepted\n";
    std::fs::write(folder.path().join("wrong.history"), wrong).unwrap();
    let judged = Command::new(PROGRAM).arg("check").arg(folder.path()).output().unwrap();
    assert!(!judged.status.success() && text(&judged).contains("a fence did not grow"));
}

/// I1, I4, I7, I10, with kills and stops of clients, and all faults of a server.
#[test]
fn one_server_survives_a_short_run() {
    assert_survives("redis", 8);
}

#[test]
fn every_topology_survives_a_long_run() {
    if std::env::var_os("TENURE_LONG").is_none() {
        return;
    }
    for engine in ["local", "redis", "sentinel", "cluster", "quorum"] {
        assert_survives(engine, 120);
    }
}

#[test]
fn a_fault_that_a_topology_does_not_have_is_refused() {
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--engine", "local", "--faults", "kill-server"]);
    let output = command.output().unwrap();
    assert!(!output.status.success());
    assert!(text(&output).contains("this topology has no fault `kill-server`"), "{output:?}");
}
