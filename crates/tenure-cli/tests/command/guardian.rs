//! `tenure` is killed or stopped, with its guardian or alone.

use std::io::Read;
use std::time::Duration;

use rustix::process::Signal;

use crate::fixture::{Fixture, Gate, Holder, becomes_so_within, children, is_alive, signal, until};
use crate::screen::Screen;

on_every_store! {
    a_command_ends_before_its_lease_when_tenure_is_stopped,
    a_command_that_stops_tenure_at_once_ends_before_its_lease,
    a_command_that_may_outlive_its_lock_does,
    a_command_goes_on_without_its_guardian,
    a_guardian_that_is_stopped_goes_on,
    a_guardian_leaves_with_the_command,
    a_job_that_is_killed_as_a_whole_ends,
}

/// A command that ignores TERM, with a process in a session of its own, and an orphan. They print their pids.
const DEAF: &str = "trap '' TERM
    setsid sh -c 'sleep 60; :' & stray=$!
    orphan=$(setsid sh -c 'sleep 60 >&- 2>&- & echo $!')
    echo held; echo $$ $stray $orphan
    while :; do sleep 0.02; done";

/// Runs a command under the lock as soon as it is free, which checks whether any of these processes lives.
fn none_lives_when_next_begins(fixture: &Fixture, pids: &str) {
    let is_alive = "test -e /proc/$pid && ! grep -q ') Z ' /proc/$pid/stat";
    let check = format!("for pid in {}; do {is_alive} && exit 9; done; exit 0", pids.trim());
    let output = fixture.output(&["run", "-w", "20s", "x", "--", "sh", "-c", &check]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// I1, R26: `kill -9` of `tenure` ends the command and its descendants before the next holder begins.
#[test]
fn a_command_ends_before_its_lease_when_tenure_is_killed() {
    let fixture = Fixture::redis();
    let arguments = ["run", "--lease", "3s", "--kill-after", "300ms", "x", "--", "sh", "-c", DEAF];
    let mut holder = Holder::start(&fixture, &arguments);
    let pids = holder.line();
    holder.kill();
    none_lives_when_next_begins(&fixture, &pids);
}

/// A command whose `tenure` was killed gets TERM first.
#[test]
fn a_command_may_end_itself_when_tenure_is_killed() {
    let fixture = Fixture::redis();
    let script = "trap 'echo asked; exit' TERM; echo held
        for time in $(seq 1000); do sleep 0.02; done; echo never";
    let holder = Holder::start(&fixture, &["run", "x", "--", "sh", "-c", script]);
    let (mut output, _talk) = holder.kill();
    let mut said = String::new();
    output.read_to_string(&mut said).unwrap();
    assert_eq!(said, "asked\n");
}

/// I1, R32: on a `local:` store the lock stays with the command, as with `flock`, for as long as the command lives, also if
/// it is not renewed.
#[test]
fn a_command_keeps_a_local_lock_when_tenure_is_killed() {
    let fixture = Fixture::local();
    let script = "echo held; echo $$; exec sleep 60";
    let mut holder =
        Holder::start(&fixture, &["run", "--lease", "300ms", "x", "--", "sh", "-c", script]);
    let command = holder.line();
    let guardian = holder.guardian();
    holder.kill();
    assert_eq!(fixture.code(&["run", "-w", "2s", "x", "--", "true"]), 75);
    // Also without the guardian: the command has inherited the lock.
    signal(&guardian, Signal::KILL);
    until("ended", || !is_alive(&guardian));
    assert_eq!(fixture.code(&["run", "-w", "1s", "x", "--", "true"]), 75);
    let mut next = fixture.tenure(&["run", "x", "--", "true"]).spawn().unwrap();
    fixture.until_waiting("x", 1);
    signal(&command, Signal::KILL);
    assert!(next.wait().unwrap().success());
}

/// The same for the command's descendants, also if one has closed all inherited files, as daemons and `sudo` do.
#[test]
fn a_daemon_keeps_a_local_lock_when_tenure_is_killed() {
    let fixture = Fixture::local();
    let close = "for file in /proc/$$/fd/*; do eval \"exec ${file##*/}>&-\"; done; exec sleep 60";
    let script = format!(
        "setsid bash -c '{close}' & echo held; echo $!; until test -e '%'; do sleep 0.02; done"
    );
    let gate = Gate::new();
    let script = script.replace('%', &gate.file());
    let mut holder =
        Holder::start(&fixture, &["run", "--lease", "300ms", "x", "--", "bash", "-c", &script]);
    let daemon = holder.line().trim().to_owned();
    let has_closed = || std::fs::read_dir(format!("/proc/{daemon}/fd")).unwrap().count() == 0;
    until("closed", has_closed);
    let guardian = holder.guardian();
    holder.kill();
    gate.open();
    until("adopted", || children(&guardian) == [&*daemon]);
    assert_eq!(fixture.code(&["run", "-w", "1s", "x", "--", "true"]), 75);
    signal(&daemon, Signal::KILL);
    assert_eq!(fixture.code(&["run", "-w", "20s", "x", "--", "true"]), 0);
}

/// I1: a stopped `tenure` does not renew; its guardian ends the command before the next holder begins.
fn a_command_ends_before_its_lease_when_tenure_is_stopped(fixture: &Fixture) {
    let arguments = ["run", "--lease", "4s", "--kill-after", "1s", "x", "--", "sh", "-c", DEAF];
    let mut holder = Holder::start(fixture, &arguments);
    let pids = holder.line();
    holder.signal(Signal::STOP);
    none_lives_when_next_begins(fixture, &pids);
    holder.signal(Signal::CONT);
    let (code, message) = holder.end();
    assert!(code == 76 && message.contains("tenure: `x` "), "{code} {message}");
}

/// I1: stopped before it could send anything to the guardian but the order. Seen before: the guardian had no deadline
/// then, and two commands ran side by side.
fn a_command_that_stops_tenure_at_once_ends_before_its_lease(fixture: &Fixture) {
    let stop = "tenure=$(awk '{print $4}' /proc/$PPID/stat); kill -STOP $tenure; trap '' TERM
        echo held; echo $$; while :; do sleep 0.02; done";
    let arguments = ["run", "--lease", "3s", "--kill-after", "600ms", "x", "--", "sh", "-c", stop];
    let mut holder = Holder::start(fixture, &arguments);
    let pid = holder.line();
    none_lives_when_next_begins(fixture, &pid);
    holder.signal(Signal::CONT);
    assert_eq!(holder.end().0, 76);
}

/// With `--on-lost warn` and `ignore` the command goes on, as always.
fn a_command_that_may_outlive_its_lock_does(fixture: &Fixture) {
    for on_lost in ["warn", "ignore"] {
        let script = "echo held; echo $$; exec sleep 60";
        let arguments = ["run", "--lease", "300ms", "--on-lost", on_lost, "x", "--", "sh", "-c"];
        let mut holder = Holder::start(fixture, &[&arguments[..], &[script]].concat());
        let command = holder.line();
        holder.kill();
        // It keeps the lock where the engine can do that, and goes on everywhere.
        let code = if fixture.is_local() { 75 } else { 0 };
        assert_eq!(fixture.code(&["run", "-w", "2s", "x", "--", "true"]), code);
        assert!(is_alive(command.trim()));
        signal(&command, Signal::KILL);
    }
}

/// Without its guardian, the command is a child of `tenure`: its status, its signals, and the end of its process tree.
fn a_command_goes_on_without_its_guardian(fixture: &Fixture) {
    let script = "trap 'kill $! 2>&-; exit 9' USR1; sleep 60 & echo held; wait";
    let holder = Holder::start(fixture, &["run", "x", "--", "sh", "-c", script]);
    let guardian = holder.guardian();
    signal(&guardian, Signal::KILL);
    until("ended", || !is_alive(&guardian));
    holder.signal(Signal::USR1);
    assert_eq!(holder.end(), (9, String::new()));

    let mut holder =
        Holder::start(fixture, &["run", "--kill-after", "300ms", "x", "--", "sh", "-c", DEAF]);
    let (pids, guardian) = (holder.line(), holder.guardian());
    signal(&guardian, Signal::KILL);
    until("ended", || !is_alive(&guardian));
    fixture.said(&["release", "--force", "x", "--reason", "a test", "--yes"]);
    assert_eq!(holder.end().0, 76);
    assert!(pids.split_whitespace().all(|pid| !is_alive(pid)), "{pids}");
}

/// A stopped guardian could neither report the command's end nor notice that of `tenure`.
fn a_guardian_that_is_stopped_goes_on(fixture: &Fixture) {
    let gate = Gate::new();
    let holder = Holder::start(fixture, &["run", "x", "--", "sh", "-c", &gate.script("exit 7")]);
    signal(&holder.guardian(), Signal::STOP);
    gate.open();
    assert_eq!(holder.end(), (7, String::new()));
}

/// `tenure run … | cat` ends with the command, and after a `kill -9` with the command's descendants that have its pipes:
/// the guardian has none of them, and does not stay.
fn a_guardian_leaves_with_the_command(fixture: &Fixture) {
    let script = "(sleep 60 >&- 2>&- & echo $!); echo held";
    let mut command = fixture.tenure(&["run", "x", "--", "sh", "-c", script]);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let daemon = said.lines().next().unwrap().to_owned();
    assert!(output.status.success() && is_alive(&daemon), "{said}");
    signal(&daemon, Signal::KILL);

    let script = "trap '' TERM; echo held; echo $$; exec >&- 2>&-; exec sleep 60";
    let run = ["run", "--lease", "1h", "--kill-after", "1h", "x", "--", "sh", "-c", script];
    let mut holder = Holder::start(fixture, &run);
    let (command, guardian) = (holder.line(), holder.guardian());
    let (mut output, mut talk) = holder.kill();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    talk.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert!(is_alive(command.trim()) && is_alive(&guardian));
    signal(&command, Signal::KILL);
    until("ended", || !is_alive(&guardian));
}

/// `kill -9 %1` kills the whole job, running or stopped; the guardian is not part of it.
fn a_job_that_is_killed_as_a_whole_ends(fixture: &Fixture) {
    for is_stopped in [false, true] {
        let mut screen = Screen::new();
        let mut session = screen.session(fixture, &["bash", "--norc", "-i"]);
        let end = if is_stopped { "" } else { " &" };
        let command = "sh -c 'echo pi''d=$$.; exec sleep 60'";
        screen.press(&format!("tenure run --kill-after 300ms x -- {command}{end}\n"));
        screen.until(".\r\n");
        let seen = screen.seen();
        let pid = seen.rsplit("pid=").next().unwrap().split('.').next().unwrap().to_owned();
        if is_stopped {
            screen.press("\u{1a}");
            screen.until("Stopped");
        }
        screen.press("kill -9 %%\n");
        screen.press("wait; echo kil''led\n");
        screen.until("killed\r\n");
        if fixture.is_local() {
            // It goes on, with its lock.
            assert!(!becomes_so_within(Duration::from_millis(300), || !is_alive(&pid)));
            signal(&pid, Signal::KILL);
        }
        until("ended", || !is_alive(&pid));
        // A shell that has not reaped its stopped job yet refuses the first one.
        screen.press("exit\nexit\n");
        session.wait().unwrap();
        assert_eq!(
            fixture.code(&["release", "--force", "x", "--reason", "a test", "--yes"]) % 75,
            0
        );
    }
}
