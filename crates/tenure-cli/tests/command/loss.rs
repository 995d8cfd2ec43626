//! A lock that is lost while the command runs.

use std::time::Duration;

use rustix::process::Signal;

use crate::fixture::{Fixture, Gate, Holder, becomes_so_within, is_alive, until};

on_every_store! {
    a_command_is_ended_when_its_lock_is_taken_away,
    a_command_that_does_not_end_itself_is_killed,
    a_loss_can_be_told_alone,
    a_loss_can_be_ignored,
    a_command_gets_no_files_of_its_keeper,
    a_loss_that_nobody_noticed_is_told,
    all_that_was_started_may_end_itself,
    what_has_left_the_process_group_is_ended,
}

/// A command that ends when it is told to by a signal.
const ENDS: &str = "trap 'kill -KILL $! 2>&-; exit 9' USR1; sleep 60 & echo held; wait";

fn take_away(fixture: &Fixture) {
    fixture.said(&["release", "--force", "x", "--reason", "a test", "--yes"]);
}

/// The loser learns who took the lock away, and why.
fn assert_forced(told: &str) {
    let begins = told.starts_with("tenure: `x` was lost: its release was forced by ");
    assert!(begins && told.contains('@') && told.ends_with(": a test\n"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

/// The end of one that has lost its lock like this.
fn assert_ended_by_force(holder: Holder) {
    let (code, told) = holder.end();
    assert_eq!(code, 76, "{told}");
    assert_forced(&told);
}

/// R13, R26: the holder is told at once, and the command and all that it has started end.
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

fn a_loss_can_be_told_alone(fixture: &Fixture) {
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

/// The child gets no file of ours, but for the one that keeps a local lock.
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

/// What a command prints by itself.
fn alone(command: &[&str]) -> String {
    let mut alone = std::process::Command::new(command[0]);
    let output = alone.args(&command[1..]).stdin(std::process::Stdio::null()).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// What the links of a folder point to, as `ls -l` tells it.
fn targets(listing: &str) -> impl Iterator<Item = &str> {
    listing.lines().filter_map(|line| Some(line.split_once(" -> ")?.1))
}

/// R26: when the lock cannot be kept, the command and all it has started end before the lease does.
#[test]
fn a_command_is_ended_before_its_lease_when_the_server_is_gone() {
    let mut fixture = Fixture::redis();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let write = format!("while :; do echo >> '{}'; sleep 0.01; done", log.display());
    // Out of the process group, and deaf.
    let script = format!("trap '' TERM; setsid sh -c \"{write}\" & echo held; echo $$; wait");
    let arguments = ["--lease", "3s", "--kill-after", "500ms", "x", "--", "sh", "-c", &script];
    let mut holder = Holder::start(&fixture, &[&["run"], &arguments[..]].concat());
    let command = holder.line();
    until("written", || log.exists());
    fixture.server().kill();
    // Nothing can be renewed from now on.
    let killed = std::fs::metadata(&log).unwrap().modified().unwrap();
    let told = "tenure: `x` is being lost: it was not renewed in time\n";
    assert_eq!(holder.end(), (76, told.to_owned()));
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

/// A lock that was lost while nobody could notice is no success.
fn a_loss_that_nobody_noticed_is_told(fixture: &Fixture) {
    let gate = Gate::new();
    let script = gate.script("exit 0");
    let sentence = "tenure: `x` was lost before the command ended\n";
    for (on_lost, code, told) in [("kill", 76, sentence), ("warn", 0, sentence), ("ignore", 0, "")]
    {
        let arguments = ["run", "--lease", "1s", "--on-lost", on_lost, "x", "--", "sh", "-c"];
        let holder = Holder::start(fixture, &[&arguments[..], &[&script]].concat());
        // Stopped past its lease, and its command ends meanwhile.
        holder.signal(Signal::STOP);
        assert_eq!(fixture.code(&["run", "-w", "10s", "x", "--", "touch", &gate.file()]), 0);
        until("ended", || holder.command_has_ended());
        holder.signal(Signal::CONT);
        let (ended, talk) = holder.end();
        let is_told = talk == told || (on_lost != "ignore" && talk.starts_with("tenure: `x` was lost: "))
                // Its guardian has ended the command in time.
                || (on_lost == "kill" && talk.starts_with("tenure: `x` is being lost: "));
        assert!(ended == code && is_told, "{on_lost}: {ended} {talk}");
        std::fs::remove_file(gate.file()).unwrap();
    }
}

/// A release that the store has not confirmed is told.
#[test]
fn a_release_that_is_not_confirmed_is_told() {
    let mut fixture = Fixture::redis();
    let gate = Gate::new();
    let holder = Holder::start(&fixture, &["run", "x", "--", "sh", "-c", &gate.script("exit 3")]);
    fixture.server().kill();
    gate.open();
    let (code, told) = holder.end();
    assert_eq!(code, 3, "{told}");
    assert!(told.ends_with("it is free when its lease ends\n"), "{told}");
}

/// What a command has started has its time to end itself, also if the command has ended already.
fn all_that_was_started_may_end_itself(fixture: &Fixture) {
    let inner =
        "trap 'sleep 0.2; echo cleaned; exit' TERM; echo held; while :; do sleep 0.02; done";
    let script = format!("sh -c \"{inner}\"; true");
    let mut holder = Holder::start(fixture, &["run", "x", "--", "sh", "-c", &script]);
    take_away(fixture);
    assert_eq!(holder.line(), "cleaned\n");
    assert_eq!(holder.end().0, 76);
}

/// `timeout` leaves the process group, so that it can end all that it runs; it is ended all the same.
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

/// A success that cannot be remembered is told: the exit status stays the command's own.
#[test]
fn a_success_that_cannot_be_remembered_is_told() {
    let mut fixture = Fixture::redis();
    let gate = Gate::new();
    let script = gate.script("exit 0");
    let arguments = ["run", "--on-lost", "ignore", "--once-per", "1h", "x", "--", "sh", "-c"];
    let holder = Holder::start(&fixture, &[&arguments[..], &[&script]].concat());
    fixture.server().kill();
    gate.open();
    let (code, told) = holder.end();
    assert_eq!(code, 0, "{told}");
    assert!(told.starts_with("tenure: it will run again too soon: "), "{told}");
}

/// A server that goes while the lock is waited for is told once the patience has ended.
#[test]
fn a_store_that_goes_away_while_waiting_is_69() {
    let mut fixture = Fixture::redis();
    fixture.said(&["acquire", "x"]);
    let mut command = fixture.tenure(&["run", "x", "--", "true"]);
    let waiting = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    fixture.until_waiting("x", 1);
    fixture.server().kill();
    let output = waiting.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(69), "{told}");
    assert!(told.contains("`x`"), "{told}");
}
