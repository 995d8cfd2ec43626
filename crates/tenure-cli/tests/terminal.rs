//! `tenure run` at a terminal: the line that is shown while it waits.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Read;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tenure_testkit::Server;

/// R28: who holds it and who is ahead, on one line that goes when the lock is there.
#[test]
fn a_waiting_command_tells_who_is_ahead() {
    let server = Server::start();
    let tenure = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.env("TENURE_URL", server.url()).env("TERM", "xterm").args(arguments);
        command
    };
    let handle = tenure(&["acquire", "--note", "migration 7", "x"]).output().unwrap().stdout;
    let handle = String::from_utf8(handle).unwrap();

    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let screen = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let mut waiting = tenure(&["run", "x", "--", "echo", "ran"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(screen)
        .spawn()
        .unwrap();

    let mut seen = String::new();
    let mut terminal = std::fs::File::from(terminal);
    while !(seen.contains("held by") && seen.contains("next in line")) {
        let mut bytes = [0; 1024];
        let count = terminal.read(&mut bytes).unwrap();
        seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        assert!(seen.len() < 100_000, "{seen}");
    }
    assert!(seen.contains("waiting for `x`") && seen.contains("(migration 7)"), "{seen}");
    assert!(tenure(&["release", handle.trim()]).status().unwrap().success());
    let mut ran = String::new();
    waiting.stdout.take().unwrap().read_to_string(&mut ran).unwrap();
    assert_eq!((waiting.wait().unwrap().code(), &*ran), (Some(0), "ran\n"));
}
