//! `--wait-replicas`: locks that replicas of the server must have.

use std::process::{Command, Stdio};
use std::time::Duration;

use tenure_testkit::Server;
use tenure_testkit::resp::Reply;

use crate::fixture::Fixture;

/// A master, and one replica.
fn with_replica() -> (Fixture, Server) {
    let start = || Server::builder().arg("--repl-diskless-sync-delay", "0").on_port().start();
    let (master, replica) = (start(), start());
    let port = master.port().unwrap().to_string();
    replica.connect().unwrap().command(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    let mut connection = master.connect().unwrap();
    connection.set_patience(Duration::from_secs(30)).unwrap();
    // The first write may be in the copy that the replica starts with.
    for value in ["1", "2"] {
        connection.command(&["SET", "probe", value]).unwrap();
        assert_eq!(connection.command(&["WAIT", "1", "20000"]).unwrap(), Reply::Integer(1));
    }
    (Fixture::of(master), replica)
}

#[test]
fn a_lock_that_a_replica_has_is_acquired() {
    let (fixture, replica) = with_replica();
    let wait = ["--wait-replicas", "1:20s"];
    let run = [&["run"][..], &wait, &["x", "--", "echo", "held"]].concat();
    assert_eq!(fixture.said(&run), "held\n");
    let strict = ["--wait-replicas-on-renewal", "--lease", "30s"];
    let elect = [&["elect"][..], &wait, &strict, &["e", "--", "echo", "held"]].concat();
    assert_eq!(fixture.said(&elect), "held\n");
    fixture.said(&[&["acquire"][..], &wait, &["--limit", "2", "y"]].concat());
    let stored = replica.connect().unwrap().command(&["EXISTS", "tenure:{y}"]).unwrap();
    assert_eq!(stored, Reply::Integer(1));
    // The holder ends with the shell.
    let script = "eval \"$(\"$TENURE\" hold --wait-replicas 1:20s z)\" || exit; echo held";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).env("TENURE", env!("CARGO_BIN_EXE_tenure"));
    let output = shell.env("TENURE_URL", &fixture.url).stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "held\n");
}

#[test]
fn too_few_replicas_are_reported_and_the_command_is_not_run() {
    let (fixture, replica) = with_replica();
    replica.pause(true);
    let wait = ["--wait-replicas", "1:200ms"];
    let said = "tenure: could not acquire `x`: 0 of 1 replicas confirmed it within 200ms; check the server's \
                replicas, or wait for fewer or for longer\n";
    for subcommand in ["run", "elect"] {
        let arguments = [&[subcommand][..], &wait, &["x", "--", "echo", "held"]].concat();
        assert_eq!(fixture.refused(69, &arguments), said);
    }
    assert_eq!(fixture.refused(69, &[&["acquire"][..], &wait, &["x"]].concat()), said);
    assert_eq!(fixture.said(&["run", "-n", "x", "--", "echo", "free"]), "free\n");
    replica.pause(false);
}

#[test]
fn what_cannot_be_had_is_refused() {
    let fixture = Fixture::local();
    let with = |replicas| {
        fixture.refused(64, &["run", "--wait-replicas", replicas, "x", "--", "echo", "held"])
    };
    let said = with("1");
    assert!(said.contains("the local store has no replicas to wait for"), "{said}");
    let said = with("0");
    assert!(said.contains("a lock can wait for 1 to 100 replicas, not 0"), "{said}");
    let said = with("1:soon");
    assert!(said.contains("`soon` is no time"), "{said}");
    fixture.refused(64, &["run", "--wait-replicas-on-renewal", "x", "--", "echo", "held"]);
}
