//! `tenure run`: from the command line to the exit status.

use std::io::Write;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::place::{Holder, Place, WAITS, tenure};

on_every_store! {
    the_command_runs_and_says_nothing_of_its_own,
    the_exit_status_is_the_commands_own,
    a_command_that_cannot_be_run_is_told_as_a_shell_does,
    the_command_knows_its_lock,
    standard_input_passes_through,
    bad_input_is_64_and_says_what_is_allowed,
    a_lock_that_is_held_is_75_or_what_was_asked_for,
    what_happens_is_said_if_asked_for,
    signals_are_passed_on,
    a_signal_while_waiting_ends_the_waiting,
    a_job_runs_once_per_time,
    a_lock_is_kept_for_its_least_time,
}

fn the_command_runs_and_says_nothing_of_its_own(place: &Place) {
    assert_eq!(place.said(&["run", "hello", "--", "echo", "one at a time"]), "one at a time\n");
    assert_eq!(place.said(&["show", "hello"]), "hello: free\n");
}

/// R28.
fn the_exit_status_is_the_commands_own(place: &Place) {
    assert_eq!(place.code(&["run", "x", "--", "sh", "-c", "exit 7"]), 7);
    assert_eq!(place.code(&["run", "x", "--", "sh", "-c", "exit 255"]), 255);
    assert_eq!(place.code(&["run", "x", "--", "sh", "-c", "kill -TERM $$"]), 128 + 15);
    assert_eq!(place.code(&["run", "x", "--", "sh", "-c", "kill -KILL $$"]), 128 + 9);
}

fn a_command_that_cannot_be_run_is_told_as_a_shell_does(place: &Place) {
    let missing = place.refused(127, &["run", "x", "--", "/no/such/program"]);
    let sentence = "tenure: could not run `/no/such/program`: No such file or directory";
    assert!(missing.starts_with(sentence), "{missing}");
    let folder = place.refused(126, &["run", "x", "--", "/"]);
    assert!(folder.starts_with("tenure: could not run `/`: Permission denied"), "{folder}");
    assert_eq!(place.said(&["show", "x"]), "x: free\n");
}

fn the_command_knows_its_lock(place: &Place) {
    let script = "echo $TENURE_NAME $TENURE_OWNER $TENURE_FENCE $TENURE_DEADLINE; date +%s%3N";
    let said = place.said(&["run", "--lease", "20s", "x y", "--", "sh", "-c", script]);
    let words: Vec<_> = said.split_whitespace().collect();
    let ["x", "y", owner, fence, deadline, date] = words[..] else { panic!("{said}") };
    assert!(owner.len() == 32 && owner.chars().all(|c| c.is_ascii_hexdigit()), "{said}");
    assert!(fence.parse::<u64>().unwrap() > 1_700_000_000_000_000, "{said}");
    let left = deadline.parse::<i64>().unwrap() - date.parse::<i64>().unwrap();
    assert!((15_000..=20_000).contains(&left), "{said}");
}

fn standard_input_passes_through(place: &Place) {
    let mut command = place.tenure(&["run", "x", "--", "cat"]);
    let mut cat = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    cat.stdin.take().unwrap().write_all(b"in and out").unwrap();
    let output = cat.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"in and out"[..]));
}

fn bad_input_is_64_and_says_what_is_allowed(place: &Place) {
    let long = "x".repeat(513);
    let note = "x".repeat(1025);
    for (arguments, sentence) in [
        (&["", "--", "true"][..], "tenure: a lock name must not be empty: give it 1 to 512 bytes"),
        (
            &[&long, "--", "true"],
            "tenure: a lock name may have at most 512 bytes, and this one has 513",
        ),
        (&["--lease", "0s", "x", "--", "true"], "10 ms to 24 h"),
        (&["--lease", "25h", "x", "--", "true"], "10 ms to 24 h"),
        (&["--at-least", "25h", "x", "--", "true"], "24 h"),
        (&["--once-per", "25h", "x", "--", "true"], "10 ms to 24 h"),
        (&["--limit", "0", "x", "--", "true"], "limit"),
        (&["--note", &note, "x", "--", "true"], "at most 1024 bytes, and this one has 1025"),
        (
            &["--wait", "soon", "x", "--", "true"],
            "`soon` is no time: write it like 500ms, 10s, 2m or 1h",
        ),
        (&["--on-lost", "cry", "x", "--", "true"], "[possible values: kill, warn, ignore]"),
        (&["-E", "256", "x", "--", "true"], "256 is not in 0..=255"),
        (&["-n", "-w", "1s", "x", "--", "true"], "cannot be used with"),
        (&["-s", "-x", "x", "--", "true"], "cannot be used with"),
        (&["-s", "--limit", "2", "x", "--", "true"], "cannot be used with"),
        (&["x"], "required arguments were not provided"),
        (&["x", "true"], "unexpected argument 'true' found"),
    ] {
        let told = place.refused(64, &[&["run"], arguments].concat());
        assert!(told.contains(sentence), "{arguments:?}: {told}");
    }
    assert!(place.refused(64, &["frobnicate"]).contains("unrecognized subcommand 'frobnicate'"));
}

#[test]
fn help_is_no_misuse() {
    for (arguments, sentence) in [
        (&["--help"][..], "Run a command while holding a lock"),
        (&["run", "--help"], "75 if the lock"),
        (&["run", "-h"], "--wait <TIME>"),
        (&["--version"], "tenure 0."),
    ] {
        let output = tenure(arguments).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && said.contains(sentence), "{arguments:?}: {said}");
    }
}

/// R28: busy is told by the exit status, and by a sentence.
fn a_lock_that_is_held_is_75_or_what_was_asked_for(place: &Place) {
    let holder = Holder::start(place, &["run", "x", "--", "sh", "-c", WAITS]);
    for arguments in [&["run", "-n", "x", "--", "echo"][..], &["acquire", "--nonblock", "x"]] {
        let told = place.refused(75, arguments);
        assert!(told.starts_with("tenure: `x` is not free: held by tenure["), "{told}");
    }
    let patience = ["--wait", "50ms", "--conflict-exit-code", "0", "x", "--", "echo"];
    let late = place.refused(0, &[&["run"], &patience[..]].concat());
    assert!(late.starts_with("tenure: `x` was not free within "), "{late}");
    assert!(late.contains(": held by tenure["), "{late}");
    assert_eq!(place.code(&["run", "-w", "50ms", "-E", "3", "x", "--", "true"]), 3);
    assert_eq!(place.code(&["acquire", "-w", "50ms", "-E", "3", "x"]), 3);
    assert_eq!(place.code(&["run", "y", "--", "true"]), 0, "another name is free");
    holder.stop();
    assert_eq!(place.code(&["run", "-w", "10s", "x", "--", "true"]), 0);
}

fn what_happens_is_said_if_asked_for(place: &Place) {
    let output = place.output(&["run", "-v", "x", "--", "sh", "-c", "echo $TENURE_FENCE"]);
    let fence = String::from_utf8(output.stdout).unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    let fence = fence.trim();
    let sentences = format!("tenure: holding `x` with fence {fence}\ntenure: releasing `x`\n");
    assert_eq!(told, sentences);
}

/// R28: signals go to the command, which decides what they mean.
fn signals_are_passed_on(place: &Place) {
    for (signal, name) in [
        (Signal::INT, "INT"),
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ] {
        let script =
            format!("trap 'kill -KILL $! 2>&-; exit 9' {name}; sleep 60 & echo held; wait");
        let holder = Holder::start(place, &["run", "x", "--", "sh", "-c", &script]);
        holder.signal(signal);
        assert_eq!(holder.end(), (9, String::new()), "{name}");
    }
}

fn a_signal_while_waiting_ends_the_waiting(place: &Place) {
    let holder = Holder::start(place, &["run", "x", "--", "sh", "-c", WAITS]);
    let mut waiting = place.tenure(&["run", "x", "--", "echo", "no"]).spawn().unwrap();
    place.until_waiting("x", 1);
    kill_process(Pid::from_child(&waiting), Signal::INT).unwrap();
    assert_eq!(waiting.wait().unwrap().code(), Some(128 + 2));
    assert_eq!(place.json(&["show", "--json", "x"])["waiting"], 0, "and it has left the queue");
    holder.stop();
}

fn a_job_runs_once_per_time(place: &Place) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let append = format!("echo ran >> {0}; test -e {0}.ok", log.display());
    let once = ["run", "-v", "--once-per", "1h", "x", "--", "sh", "-c", &append];
    let runs = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
    assert_eq!(place.code(&once), 1);
    assert_eq!(place.code(&once), 1, "it failed, so it is tried again");
    std::fs::write(folder.path().join("log.ok"), "").unwrap();
    assert_eq!(place.code(&once), 0);
    assert_eq!(runs(), 3);
    let again = place.refused(0, &once);
    assert!(again.contains("tenure: done already: nothing to do\n"), "{again}");
    assert_eq!(runs(), 3, "it has succeeded within the hour");
}

fn a_lock_is_kept_for_its_least_time(place: &Place) {
    assert_eq!(place.code(&["run", "--at-least", "1s", "x", "--", "true"]), 0);
    assert_eq!(place.code(&["run", "-n", "x", "--", "true"]), 75);
    assert!(place.said(&["show", "x"]).contains("    released, and kept for its least time\n"));
    assert_eq!(place.code(&["run", "-w", "10s", "x", "--", "true"]), 0);
}
