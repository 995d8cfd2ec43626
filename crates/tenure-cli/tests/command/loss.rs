//! A lock that is lost while the command runs.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::place::{Holder, Place, is_alive, now, until};

on_every_store! {
    a_command_is_ended_when_its_lock_is_taken_away,
    a_command_that_does_not_end_itself_is_killed,
    a_loss_can_be_told_alone,
    a_loss_can_be_ignored,
    a_killed_command_frees_its_lock,
    a_command_gets_no_files_of_its_keeper,
}

/// A command that ends when it is told to by a signal.
const ENDS: &str = "trap 'kill -KILL $! 2>&-; exit 9' USR1; sleep 60 & echo held; wait";

const LOST: &str = "tenure: `x` is being lost: it was not renewed in time, or taken away\n";

fn take_away(place: &Place) {
    place.said(&["release", "--force", "x", "--reason", "a test", "--yes"]);
}

/// R13, R26: the holder is told at once, and the command and all that it has started end.
fn a_command_is_ended_when_its_lock_is_taken_away(place: &Place) {
    let script = "sleep 60 & echo held; echo $! $$; wait";
    let mut holder = Holder::start(place, &["run", "--lease", "1h", "x", "--", "sh", "-c", script]);
    let pids = holder.line();
    take_away(place);
    assert_eq!(holder.end(), (76, LOST.to_owned()));
    pids.split_whitespace().for_each(|pid| until("dead", || !is_alive(pid)));
}

fn a_command_that_does_not_end_itself_is_killed(place: &Place) {
    let script = "trap 'echo asked' TERM; echo held; while :; do sleep 0.02; done";
    let arguments = ["run", "--kill-after", "200ms", "x", "--", "sh", "-c", script];
    let mut holder = Holder::start(place, &arguments);
    take_away(place);
    assert_eq!(holder.sentence(), LOST);
    assert_eq!(holder.line(), "asked\n");
    assert_eq!(holder.end().0, 76);
}

fn a_loss_can_be_told_alone(place: &Place) {
    let arguments = ["run", "--on-lost", "warn", "x", "--", "sh", "-c", ENDS];
    let mut holder = Holder::start(place, &arguments);
    take_away(place);
    assert_eq!(holder.sentence(), LOST);
    assert_eq!(place.code(&["run", "-n", "x", "--", "true"]), 0, "another has it");
    holder.signal(Signal::USR1);
    assert_eq!(holder.end(), (9, String::new()));
}

fn a_loss_can_be_ignored(place: &Place) {
    let holder = Holder::start(place, &["run", "--on-lost", "ignore", "x", "--", "sh", "-c", ENDS]);
    take_away(place);
    assert_eq!(place.code(&["run", "-n", "x", "--", "true"]), 0, "another has it");
    holder.signal(Signal::USR1);
    assert_eq!(holder.end(), (9, String::new()));
}

/// Kills a `tenure` on the spot, and returns what it ran, which lives on.
fn killed(place: &Place, lease: &str) -> Pid {
    let script = "echo held; echo $$; exec sleep 60";
    let mut holder =
        Holder::start(place, &["run", "--lease", lease, "x", "--", "sh", "-c", script]);
    let child = holder.line();
    holder.kill();
    assert!(is_alive(child.trim()));
    Pid::from_raw(child.trim().parse().unwrap()).unwrap()
}

/// R4: a command that is killed on the spot, and whose child lives on, frees its lock with its
/// lease.
fn a_killed_command_frees_its_lock(place: &Place) {
    let child = killed(place, "1s");
    assert_eq!(place.code(&["run", "-n", "x", "--", "true"]), 75, "the child has the lease");
    assert_eq!(place.code(&["run", "-w", "10s", "x", "--", "true"]), 0);
    kill_process(child, Signal::KILL).unwrap();
}

/// R32: on one machine the kernel tells when the child has ended as well.
#[test]
fn a_killed_command_and_its_child_free_their_lock_at_once() {
    let place = Place::local();
    let child = killed(&place, "1h");
    assert_eq!(place.code(&["run", "-n", "x", "--", "true"]), 75);
    kill_process(child, Signal::KILL).unwrap();
    assert_eq!(place.code(&["run", "-w", "10s", "x", "--", "true"]), 0);
}

/// The child gets no file of ours, but for the one that keeps a local lock.
fn a_command_gets_no_files_of_its_keeper(place: &Place) {
    let files = "ls -l /proc/$$/fd | sed -n 's/.* -> //p'";
    let (bare, under) = (alone(files), place.said(&["run", "x", "--", "sh", "-c", files]));
    let others = under.lines().filter(|file| !bare.lines().any(|known| known == *file));
    let ours: Vec<_> = others.filter(|file| !file.starts_with("pipe:")).collect();
    if place.is_local() {
        assert!(matches!(ours[..], [file] if file.ends_with(".lock")), "{ours:?}");
    } else {
        assert!(ours.is_empty(), "{ours:?}");
    }
}

/// What a script prints by itself.
fn alone(script: &str) -> String {
    let mut command = std::process::Command::new("sh");
    let output = command.args(["-c", script]).stdin(std::process::Stdio::null()).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// R26: when the lock cannot be kept, the command and all it has started end before the lease does.
#[test]
fn a_command_is_ended_before_its_lease_when_the_server_is_gone() {
    let mut place = Place::redis();
    let script = "trap '' TERM; sleep 60 & echo held; echo $! $$; while :; do sleep 1; done";
    let started = now();
    let arguments = ["--lease", "3s", "--kill-after", "500ms", "x", "--", "sh", "-c", script];
    let mut holder = Holder::start(&place, &[&["run"], &arguments[..]].concat());
    let pids = holder.line();
    place.server().kill();
    assert_eq!(holder.end(), (76, LOST.to_owned()));
    // Renewed a second after the start at the latest; from then on it has the lease.
    let ended = started.elapsed();
    assert!(ended < Duration::from_millis(4_000), "{ended:?}");
    pids.split_whitespace().for_each(|pid| until("dead", || !is_alive(pid)));
}

/// A success that cannot be remembered is told: the exit status stays the command's own.
#[test]
fn a_success_that_cannot_be_remembered_is_told() {
    let mut place = Place::redis();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("go on");
    let script = format!("echo held; until test -e '{}'; do sleep 0.02; done", file.display());
    let arguments = ["run", "--on-lost", "ignore", "--once-per", "1h", "x", "--", "sh", "-c"];
    let holder = Holder::start(&place, &[&arguments[..], &[&script]].concat());
    place.server().kill();
    std::fs::write(file, "").unwrap();
    let (code, told) = holder.end();
    assert_eq!(code, 0, "{told}");
    assert!(told.starts_with("tenure: it will run again too soon: "), "{told}");
}

/// A server that goes while the lock is waited for is told once the patience has ended.
#[test]
fn a_store_that_goes_away_while_waiting_is_69() {
    let mut place = Place::redis();
    place.said(&["acquire", "x"]);
    let mut command = place.tenure(&["run", "x", "--", "true"]);
    let waiting = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    place.until_waiting("x", 1);
    place.server().kill();
    let output = waiting.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(69), "{told}");
    assert!(told.contains("`x`"), "{told}");
}
