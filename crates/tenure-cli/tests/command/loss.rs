//! A lock that is lost while the command runs.

use std::time::Duration;

use rustix::process::Signal;

use crate::fixture::{Fixture, Gate, Holder, becomes_so_within, is_alive, until};

on_every_store! {
    a_command_is_ended_when_its_lock_is_taken_away,
    a_command_that_does_not_end_itself_is_killed,
    a_loss_can_be_reported_alone,
    a_loss_can_be_ignored,
    a_command_gets_no_files_of_its_keeper,
    a_loss_that_was_not_noticed_is_reported,
    all_that_was_started_may_end_itself,
    what_has_left_the_process_group_is_ended,
}

/// A command that ends at a signal.
const ENDS: &str = "trap 'kill -KILL $! 2>&-; exit 9' USR1; sleep 60 & echo held; wait";

fn take_away(fixture: &Fixture) {
    fixture.said(&["release", "--force", "x", "--reason", "a test", "--yes"]);
}

/// The message names the client that forced the release, and its reason.
fn assert_forced(message: &str) {
    let begins = message.starts_with("tenure: `x` was lost: its release was forced by ");
    assert!(begins && message.contains('@') && message.ends_with(": a test\n"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

/// The end of a holder that has lost its lock by force.
fn assert_ended_by_force(holder: Holder) {
    let (code, message) = holder.end();
    assert_eq!(code, 76, "{message}");
    assert_forced(&message);
}

/// R13, R26: the holder is notified at once, and the command and its descendants end.
fn a_command_is_ended_when_its_lock_is_taken_away(fixture: &Fixture) {
    let script = "sleep 60 & echo held; echo $! $$; wait";
    let mut holder =
        Holder::start(fixture, &["run", "--lease", "1h", "x", "--", "sh", "-c", script]);
    let pids = holder.line();
    take_away(fixture);
    assert_ended_by_force(holder);
    pids.split_whitespace().for_each(|pid| until("dead", || !is_alive(pid)));
}

fn a_command_that_does_not_end_itself_is_killed(fixture: &Fixture) {
    let script = "exec 2>&-; trap 'echo asked' TERM; echo held; while :; do sleep 0.02; done";
    let arguments = ["run", "--kill-after", "200ms", "x", "--", "sh", "-c", script];
    let mut holder = Holder::start(fixture, &arguments);
    take_away(fixture);
    assert_forced(&holder.sentence());
    assert_eq!(holder.line(), "asked\n");
    assert_eq!(holder.end().0, 76);
}

fn a_loss_can_be_reported_alone(fixture: &Fixture) {
    let arguments = ["run", "--on-lost", "warn", "x", "--", "sh", "-c", ENDS];
    let mut holder = Holder::start(fixture, &arguments);
    take_away(fixture);
    assert_forced(&holder.sentence());
    assert_eq!(fixture.code(&["run", "-n", "x", "--", "true"]), 0, "another has it");
    holder.signal(Signal::USR1);
    assert_eq!(holder.end(), (9, String::new()));
}

fn a_loss_can_be_ignored(fixture: &Fixture) {
    let holder =
        Holder::start(fixture, &["run", "--on-lost", "ignore", "x", "--", "sh", "-c", ENDS]);
    take_away(fixture);
    assert_eq!(fixture.code(&["run", "-n", "x", "--", "true"]), 0, "another has it");
    holder.signal(Signal::USR1);
    assert_eq!(holder.end(), (9, String::new()));
}

/// The command inherits no file of `tenure`, except the one that keeps a local lock.
fn a_command_gets_no_files_of_its_keeper(fixture: &Fixture) {
    let files = ["ls", "-l", "/proc/self/fd"];
    let (bare, under) = (alone(&files), fixture.said(&[&["run", "x", "--"], &files[..]].concat()));
    let (bare, under): (Vec<_>, Vec<_>) = (targets(&bare).collect(), targets(&under).collect());
    let others = under.iter().filter(|file| !bare.contains(file));
    // Its own pipes, and its own folder.
    let foreign = |file: &&&str| !file.starts_with("pipe:") && !file.starts_with("/proc/");
    let ours: Vec<_> = others.filter(foreign).collect();
    if fixture.is_local() {
        assert!(matches!(ours[..], [file] if file.ends_with(".lock")), "{ours:?}");
    } else {
        assert!(ours.is_empty(), "{ours:?}");
    }
}

/// The output of a command without a lock.
fn alone(command: &[&str]) -> String {
    let mut alone = std::process::Command::new(command[0]);
    let output = alone.args(&command[1..]).stdin(std::process::Stdio::null()).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// The targets of the links in a folder, from `ls -l`.
fn targets(listing: &str) -> impl Iterator<Item = &str> {
    listing.lines().filter_map(|line| Some(line.split_once(" -> ")?.1))
}

/// R26: when the lock cannot be renewed, the command and its descendants end before the lease does.
#[test]
fn a_command_is_ended_before_its_lease_when_the_server_is_down() {
    let mut fixture = Fixture::redis();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let write = format!("while :; do echo >> '{}'; sleep 0.01; done", log.display());
    // Outside the process group, and ignores TERM.
    let script = format!("trap '' TERM; setsid sh -c \"{write}\" & echo held; echo $$; wait");
    let arguments = ["--lease", "3s", "--kill-after", "500ms", "x", "--", "sh", "-c", &script];
    let mut holder = Holder::start(&fixture, &[&["run"], &arguments[..]].concat());
    let command = holder.line();
    until("written", || log.exists());
    fixture.server().kill();
    // Nothing can be renewed from now on.
    let killed = std::fs::metadata(&log).unwrap().modified().unwrap();
    let message = "tenure: `x` is being lost: it was not renewed in time\n";
    assert_eq!(holder.end(), (76, message.to_owned()));
    assert!(!is_alive(command.trim()));
    let last = std::fs::metadata(&log).unwrap().modified().unwrap();
    let after = last.duration_since(killed).unwrap();
    assert!(after < Duration::from_secs(3), "{after:?}");
    assert!(after > Duration::from_secs(1), "it had its time: {after:?}");
    let size = std::fs::metadata(&log).unwrap().len();
    assert!(!becomes_so_within(Duration::from_millis(100), || {
        std::fs::metadata(&log).unwrap().len() > size
    }));
}

/// A lock that was lost unnoticed is no success.
fn a_loss_that_was_not_noticed_is_reported(fixture: &Fixture) {
    let gate = Gate::new();
    let script = gate.script("exit 0");
    let sentence = "tenure: `x` was lost before the command ended\n";
    for (on_lost, code, message) in
        [("kill", 76, sentence), ("warn", 0, sentence), ("ignore", 0, "")]
    {
        let arguments = ["run", "--lease", "1s", "--on-lost", on_lost, "x", "--", "sh", "-c"];
        let holder = Holder::start(fixture, &[&arguments[..], &[&script]].concat());
        // Stopped past its lease, and its command ends meanwhile.
        holder.signal(Signal::STOP);
        assert_eq!(fixture.code(&["run", "-w", "10s", "x", "--", "touch", &gate.file()]), 0);
        until("ended", || holder.command_has_ended());
        holder.signal(Signal::CONT);
        let (ended, talk) = holder.end();
        let is_reported = talk == message || (on_lost != "ignore" && talk.starts_with("tenure: `x` was lost: "))
                // Its guardian has ended the command in time.
                || (on_lost == "kill" && talk.starts_with("tenure: `x` is being lost: "));
        assert!(ended == code && is_reported, "{on_lost}: {ended} {talk}");
        std::fs::remove_file(gate.file()).unwrap();
    }
}

/// A release that the store has not confirmed is reported.
#[test]
fn a_release_that_is_not_confirmed_is_reported() {
    let mut fixture = Fixture::redis();
    let gate = Gate::new();
    let holder = Holder::start(&fixture, &["run", "x", "--", "sh", "-c", &gate.script("exit 3")]);
    fixture.server().kill();
    gate.open();
    let (code, message) = holder.end();
    assert_eq!(code, 3, "{message}");
    assert!(message.ends_with("it is free when its lease ends\n"), "{message}");
}

/// The command's descendants have the grace time, also if the command itself has ended already.
fn all_that_was_started_may_end_itself(fixture: &Fixture) {
    let inner =
        "trap 'sleep 0.2; echo cleaned; exit' TERM; echo held; while :; do sleep 0.02; done";
    let script = format!("sh -c \"{inner}\"; true");
    let mut holder = Holder::start(fixture, &["run", "x", "--", "sh", "-c", &script]);
    take_away(fixture);
    assert_eq!(holder.line(), "cleaned\n");
    assert_eq!(holder.end().0, 76);
}

/// `timeout` leaves the process group, so that it can end what it runs; it is ended all the same.
fn what_has_left_the_process_group_is_ended(fixture: &Fixture) {
    let inner = "trap '' TERM; echo held; echo $$; while :; do sleep 1; done";
    let script = format!("timeout 60 sh -c \"{}\"; true", inner.replace('$', "\\$"));
    let arguments = ["run", "--kill-after", "200ms", "x", "--", "sh", "-c", &script];
    let mut holder = Holder::start(fixture, &arguments);
    let pid = holder.line();
    take_away(fixture);
    assert_ended_by_force(holder);
    assert!(!is_alive(pid.trim()));
}

/// A success that cannot be recorded is reported; the exit status stays the command's own.
#[test]
fn a_success_that_cannot_be_recorded_is_reported() {
    let mut fixture = Fixture::redis();
    let gate = Gate::new();
    let script = gate.script("exit 0");
    let arguments = ["run", "--on-lost", "ignore", "--once-per", "1h", "x", "--", "sh", "-c"];
    let holder = Holder::start(&fixture, &[&arguments[..], &[&script]].concat());
    fixture.server().kill();
    gate.open();
    let (code, message) = holder.end();
    assert_eq!(code, 0, "{message}");
    assert!(
        message.starts_with(
            "tenure: could not record the success for --once-per; the command may run again early: "
        ),
        "{message}"
    );
}

/// A server that goes down while the lock is waited for is reported at the end of the patience.
#[test]
fn a_store_that_goes_away_while_waiting_is_69() {
    let mut fixture = Fixture::redis();
    fixture.said(&["acquire", "x"]);
    let mut command = fixture.tenure(&["run", "x", "--", "true"]);
    let waiting = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    fixture.until_waiting("x", 1);
    fixture.server().kill();
    let output = waiting.wait_with_output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(69), "{message}");
    assert!(message.contains("`x`"), "{message}");
}
