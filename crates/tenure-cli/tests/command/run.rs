//! `tenure run`: from the command line to the exit status.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{Fixture, Gate, Holder, WAITS, tenure, until};

on_every_store! {
    the_command_runs_and_says_nothing_of_its_own,
    the_exit_status_is_the_commands_own,
    a_shell_command_line_is_run_by_the_shell,
    a_command_that_cannot_be_run_is_reported_as_a_shell_does,
    the_command_knows_its_lock,
    standard_input_passes_through,
    bad_input_is_64_and_says_what_is_allowed,
    a_lock_that_is_held_is_75_or_what_was_asked_for,
    what_happens_is_said_if_asked_for,
    a_wait_is_reported_if_asked_for,
    signals_are_passed_on,
    an_ignored_signal_stays_ignored,
    a_status_is_known_though_children_are_ignored,
    a_lock_that_was_handed_over_is_kept,
    an_orphan_does_not_stay_behind,
    a_script_without_a_first_line_is_run_by_the_shell,
    jobs_that_share_a_lock_run_once_per_time,
    a_signal_while_waiting_ends_the_waiting,
    a_job_runs_once_per_time,
    a_job_runs_once_per_year,
    a_job_may_begin_at_a_random_time,
    a_signal_during_the_jitter_ends_it,
    a_lock_is_kept_for_its_least_time,
    a_lock_is_not_kept_for_nothing,
    a_lock_that_is_kept_shows_its_holder,
    a_stopped_command_is_continued,
}

fn the_command_runs_and_says_nothing_of_its_own(fixture: &Fixture) {
    assert_eq!(fixture.said(&["run", "hello", "--", "echo", "one at a time"]), "one at a time\n");
    assert_eq!(fixture.said(&["show", "hello"]), "hello: free\n");
}

/// R28.
fn the_exit_status_is_the_commands_own(fixture: &Fixture) {
    assert_eq!(fixture.code(&["run", "x", "--", "sh", "-c", "exit 7"]), 7);
    assert_eq!(fixture.code(&["run", "x", "--", "sh", "-c", "exit 255"]), 255);
    assert_eq!(fixture.code(&["run", "x", "--", "sh", "-c", "kill -TERM $$"]), 128 + 15);
    assert_eq!(fixture.code(&["run", "x", "--", "sh", "-c", "kill -KILL $$"]), 128 + 9);
}

fn a_shell_command_line_is_run_by_the_shell(fixture: &Fixture) {
    let line = "echo $TENURE_NAME | tr a-z A-Z; exit 7";
    for arguments in
        [["run", "-c", line, "x"], ["run", "x", "-c", line], ["elect", "x", "--command", line]]
    {
        let output = fixture.output(&arguments);
        assert_eq!((output.status.code(), &*output.stdout), (Some(7), &b"X\n"[..]), "{output:?}");
    }
    let both = fixture.refused(64, &["run", "-c", line, "x", "--", "true"]);
    let sentence = "the argument '--command <LINE>' cannot be used with '[COMMAND]...'";
    assert!(both.contains(sentence) && !both.contains("two dashes"), "{both}");
}

fn a_command_that_cannot_be_run_is_reported_as_a_shell_does(fixture: &Fixture) {
    let missing = fixture.refused(127, &["run", "x", "--", "/no/such/program"]);
    let sentence = "tenure: could not run `/no/such/program`: No such file or directory";
    assert!(missing.starts_with(sentence), "{missing}");
    let hint = "; no shell reads it: for a shell command line use -c 'echo it'\\''s 1'\n";
    let line = fixture.refused(127, &["run", "x", "--", "echo it's 1"]);
    assert!(line.starts_with("tenure: could not run `echo it's 1`: ") && line.ends_with(hint));
    let words = fixture.refused(127, &["run", "x", "--", "no such", "program"]);
    assert!(!words.contains("use -c") && !missing.contains("use -c"), "{words} {missing}");
    let folder = fixture.refused(126, &["run", "x", "--", "/"]);
    assert!(folder.starts_with("tenure: could not run `/`: Permission denied"), "{folder}");
    assert_eq!(fixture.said(&["show", "x"]), "x: free\n");
}

fn the_command_knows_its_lock(fixture: &Fixture) {
    let script = "echo $TENURE_NAME $TENURE_OWNER $TENURE_FENCE $TENURE_DEADLINE; date +%s%3N";
    let said = fixture.said(&["run", "--lease", "20s", "x y", "--", "sh", "-c", script]);
    let words: Vec<_> = said.split_whitespace().collect();
    let ["x", "y", owner, fence, deadline, date] = words[..] else { panic!("{said}") };
    assert!(owner.len() == 32 && owner.chars().all(|c| c.is_ascii_hexdigit()), "{said}");
    assert!(fence.parse::<u64>().unwrap() > 1_700_000_000_000_000, "{said}");
    let left = deadline.parse::<i64>().unwrap() - date.parse::<i64>().unwrap();
    assert!((15_000..=20_000).contains(&left), "{said}");
}

fn standard_input_passes_through(fixture: &Fixture) {
    let mut command = fixture.tenure(&["run", "x", "--", "cat"]);
    let mut cat = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    cat.stdin.take().unwrap().write_all(b"in and out").unwrap();
    let output = cat.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"in and out"[..]));
}

fn bad_input_is_64_and_says_what_is_allowed(fixture: &Fixture) {
    let long = "x".repeat(513);
    let note = "x".repeat(1025);
    for (arguments, sentence) in [
        (&["", "--", "true"][..], "tenure: a lock name must not be empty: give it 1 to 512 bytes"),
        (
            &[&long, "--", "true"],
            "tenure: a lock name may have at most 512 bytes, and this one has 513",
        ),
        (&["--lease", "0s", "x", "--", "true"], "10 ms at least"),
        (&["--lease", "25h", "x", "--", "true"], "24 h at most"),
        (&["--at-least", "25h", "x", "--", "true"], "24 h"),
        (&["--limit", "0", "x", "--", "true"], "limit"),
        (&["--note", &note, "x", "--", "true"], "at most 1024 bytes, and this one has 1025"),
        (
            &["--wait", "soon", "x", "--", "true"],
            "`soon` is no time: write it like 500ms, 10s, 2m, 1h30m or 1d",
        ),
        (&["--on-lost", "cry", "x", "--", "true"], "[possible values: kill, warn, ignore]"),
        (&["-E", "256", "x", "--", "true"], "256 is not in 0..=255"),
        (&["-n", "-w", "1s", "x", "--", "true"], "cannot be used with"),
        (&["-s", "-x", "x", "--", "true"], "cannot be used with"),
        (&["-s", "--limit", "2", "x", "--", "true"], "cannot be used with"),
        (&["x"], "required arguments were not provided"),
        (&["x", "true"], "the command comes behind two dashes"),
    ] {
        let message = fixture.refused(64, &[&["run"], arguments].concat());
        assert!(message.contains(sentence), "{arguments:?}: {message}");
    }
    for arguments in [&["run"][..], &["elect", "x"], &["acquire"], &["show"], &["renew"]] {
        let message = fixture.refused(64, arguments);
        let usage = message.lines().find(|line| line.starts_with("Usage: ")).unwrap();
        assert!(!usage.contains("--url"), "not required, though TENURE_URL is set: {usage}");
    }
    assert!(fixture.refused(64, &["frobnicate"]).contains("unrecognized subcommand 'frobnicate'"));
}

#[test]
fn help_is_no_misuse() {
    for (arguments, sentence) in [
        (&["--help"][..], "Run a command while holding a lock"),
        (&["run", "--help"], "75        the lock was not acquired"),
        (&["run", "-h"], "--wait <TIME>"),
        (&["--version"], "tenure 0."),
    ] {
        let output = tenure(arguments).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && said.contains(sentence), "{arguments:?}: {said}");
    }
}

/// R28: a lock that is held is reported by the exit status, and by a message.
fn a_lock_that_is_held_is_75_or_what_was_asked_for(fixture: &Fixture) {
    let holder = Holder::start(fixture, &["run", "x", "--", "sh", "-c", WAITS]);
    for arguments in [&["run", "-n", "x", "--", "echo"][..], &["acquire", "--nonblock", "x"]] {
        let message = fixture.refused(75, arguments);
        assert!(message.starts_with("tenure: `x` is not free: held by sh["), "{message}");
    }
    let patience = ["--wait", "1500ms", "--conflict-exit-code", "0", "x", "--", "echo"];
    let late = fixture.refused(0, &[&["run"], &patience[..]].concat());
    assert!(late.starts_with("tenure: `x` was not free within 1.5 s: held by sh["), "{late}");
    let late = fixture.refused(75, &["run", "-w", "1", "x", "--", "true"]);
    assert!(late.starts_with("tenure: `x` was not free within 1 s: held by sh["), "{late}");
    assert_eq!(fixture.code(&["run", "-w", "1s", "-E", "3", "x", "--", "true"]), 3);
    assert_eq!(fixture.code(&["acquire", "-w", "1s", "-E", "3", "x"]), 3);
    assert_eq!(fixture.code(&["run", "y", "--", "true"]), 0, "another name is free");
    holder.stop();
    assert_eq!(fixture.code(&["run", "-w", "10s", "x", "--", "true"]), 0);
}

fn what_happens_is_said_if_asked_for(fixture: &Fixture) {
    let output = fixture.output(&["run", "-v", "x", "--", "sh", "-c", "echo $TENURE_FENCE"]);
    let fence = String::from_utf8(output.stdout).unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    let fence = fence.trim();
    let sentences = format!("tenure: holding `x` with fence {fence}\ntenure: releasing `x`\n");
    assert_eq!(message, sentences);
}

fn a_wait_is_reported_if_asked_for(fixture: &Fixture) {
    let handle = fixture.said(&["acquire", "--note", "a test", "x"]);
    let mut waiting = fixture.tenure(&["run", "-v", "x", "--", "true"]);
    let mut waiting = waiting.stderr(Stdio::piped()).spawn().unwrap();
    let mut talk = BufReader::new(waiting.stderr.take().unwrap());
    let mut message = String::new();
    talk.read_line(&mut message).unwrap();
    assert!(message.starts_with("tenure: waiting for `x`, next in line: held by "), "{message}");
    fixture.said(&["release", handle.trim()]);
    assert!(waiting.wait().unwrap().success());
}

/// R28: signals go to the command, which decides what they mean.
fn signals_are_passed_on(fixture: &Fixture) {
    for (signal, name) in [
        (Signal::INT, "INT"),
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::WINCH, "WINCH"),
    ] {
        let script =
            format!("trap 'kill -KILL $! 2>&-; exit 9' {name}; sleep 60 & echo held; wait");
        let run = ["run", "x", "--", "sh", "-c", &script];
        let holder = Holder::begin(&mut fixture.with_signals("--default-signal", &run));
        holder.signal(signal);
        assert_eq!(holder.end(), (9, String::new()), "{name}");
    }
}

fn a_signal_while_waiting_ends_the_waiting(fixture: &Fixture) {
    let holder = Holder::start(fixture, &["run", "x", "--", "sh", "-c", WAITS]);
    let mut waiting = fixture.with_signals("--default-signal", &["run", "x", "--", "echo", "no"]);
    let mut waiting = waiting.spawn().unwrap();
    fixture.until_waiting("x", 1);
    // A terminal that changes its size ends nothing.
    kill_process(Pid::from_child(&waiting), Signal::WINCH).unwrap();
    kill_process(Pid::from_child(&waiting), Signal::INT).unwrap();
    // By the signal itself: after a status, a shell would go on with its script.
    assert_eq!(waiting.wait().unwrap().signal(), Some(2));
    assert_eq!(fixture.json(&["show", "--json", "x"])["waiting"], 0, "and it has left the queue");
    holder.stop();
}

/// A signal that is ignored since the start is ignored by the command, too, as under nohup.
fn an_ignored_signal_stays_ignored(fixture: &Fixture) {
    let script = "kill -HUP $$; echo survived";
    let run = ["run", "x", "--", "sh", "-c", script];
    let output = fixture.with_signals("--ignore-signal=HUP", &run).output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"survived\n"[..]));
    let ended = fixture.with_signals("--default-signal=HUP", &run).output().unwrap();
    assert_eq!(ended.status.code(), Some(128 + 1));
}

/// Also a caller that ignores CHLD gets the command's status.
fn a_status_is_known_though_children_are_ignored(fixture: &Fixture) {
    let run = ["run", "x", "--", "sh", "-c", "exit 7"];
    let status = fixture.with_signals("--ignore-signal=CHLD", &run).status().unwrap();
    assert_eq!(status.code(), Some(7));
}

/// A claim lease lasts for three seconds until it is confirmed; the command may need more to end in.
fn a_lock_that_was_handed_over_is_kept(fixture: &Fixture) {
    let handle = fixture.said(&["acquire", "x"]);
    let mut next = fixture.tenure(&["run", "--lease", "7s", "x", "--", "sleep", "1"]);
    let next = next.stderr(Stdio::piped()).spawn().unwrap();
    fixture.until_waiting("x", 1);
    fixture.said(&["release", handle.trim()]);
    let output = next.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// An orphan that ends is reaped.
fn an_orphan_does_not_stay_behind(fixture: &Fixture) {
    let script = "(sh -c 'echo $$; echo held' &) > /dev/fd/3; exec sleep 60";
    let run = ["run", "x", "--", "sh", "-c", &format!("exec 3>&1; echo held; {script}")];
    let mut holder = Holder::start(fixture, &run);
    let orphan = format!("/proc/{}", holder.line().trim());
    until("forgotten", || !std::path::Path::new(&orphan).exists());
    holder.stop();
}

/// A script without `#!`, as `env` and `flock` run it.
fn a_script_without_a_first_line_is_run_by_the_shell(fixture: &Fixture) {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "echo $1 of $TENURE_NAME").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(fixture.said(&["run", "x", "--", script.to_str().unwrap(), "one"]), "one of x\n");
    // Found through PATH, behind folders without it and with one of its name that may not be run.
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("script"), "echo wrong").unwrap();
    let path =
        format!("/nowhere:{}:{}:/usr/bin:/bin", other.path().display(), folder.path().display());
    let mut found = fixture.tenure(&["run", "x", "--", "script", "two"]);
    let output = found.env("PATH", path).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "two of x\n", "{output:?}");
}

/// Two holders that share a lock may succeed at once; one of them records it.
fn jobs_that_share_a_lock_run_once_per_time(fixture: &Fixture) {
    let gate = Gate::new();
    let script = gate.script("exit 0");
    let once = ["run", "-s", "--once-per", "1h", "x", "--", "sh", "-c", &script];
    let both = [Holder::start(fixture, &once), Holder::start(fixture, &once)];
    gate.open();
    for one in both {
        assert_eq!(one.end(), (0, String::new()));
    }
    let mark = fixture.json(&["show", "--json", "tenure-once/x"]);
    assert_eq!(mark["holders"][0]["about"]["program"], "sh", "{mark}");
    assert_eq!(fixture.said(&once), "", "done already");
}

/// A record outlives the longest lease.
fn a_job_runs_once_per_year(fixture: &Fixture) {
    let once = ["run", "--once-per", "365d", "x", "--", "echo", "ran"];
    assert_eq!(fixture.said(&once), "ran\n");
    let lock = fixture.json(&["show", "--json", "tenure-once/x"]);
    let (holder, days) = (&lock["holders"][0], |it: u64| it * 24 * 3_600_000);
    let left = holder["lease_left_ms"].as_u64().unwrap();
    assert!((days(364)..=days(365)).contains(&left), "{lock}");
    assert_eq!(
        (&holder["about"]["program"], &holder["about"]["pid"]),
        (&"echo".into(), &().into())
    );
    assert_eq!(fixture.said(&once), "");
    assert!(fixture.said(&["ls"]).contains("364d23h"), "{}", fixture.said(&["ls"]));
    fixture.said(&["release", "--force", "tenure-once/x", "--reason", "again", "--yes"]);
    assert_eq!(fixture.said(&once), "ran\n");
}

fn a_job_may_begin_at_a_random_time(fixture: &Fixture) {
    let output = fixture.output(&["run", "-v", "--jitter", "300ms", "-n", "x", "--", "true"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && message.starts_with("tenure: waiting for 0."), "{message}");
    assert!(message.contains("s (--jitter)\ntenure: holding `x`"), "{message}");
    assert!(
        fixture
            .refused(64, &["run", "--jitter", "25h", "x", "--", "true"])
            .contains("24 h at most")
    );
    // The wait for the lock begins after it.
    assert_eq!(fixture.code(&["run", "--jitter", "300ms", "-w", "200ms", "x", "--", "true"]), 0);
}

fn a_signal_during_the_jitter_ends_it(fixture: &Fixture) {
    let run = ["run", "-v", "--jitter", "24h", "x", "--", "true"];
    let mut command = fixture.with_signals("--default-signal", &run);
    let mut waiting = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut message = String::new();
    BufReader::new(waiting.stderr.take().unwrap()).read_line(&mut message).unwrap();
    assert!(message.ends_with(" (--jitter)\n"), "{message}");
    kill_process(Pid::from_child(&waiting), Signal::TERM).unwrap();
    assert_eq!(waiting.wait().unwrap().code(), Some(128 + 15));
}

fn a_job_runs_once_per_time(fixture: &Fixture) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let append = format!("echo ran >> {0}; test -e {0}.ok", log.display());
    let once = ["run", "-v", "--once-per", "1h", "x", "--", "sh", "-c", &append];
    let runs = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
    assert_eq!(fixture.code(&once), 1);
    assert_eq!(fixture.code(&once), 1, "it failed, so it is tried again");
    std::fs::write(folder.path().join("log.ok"), "").unwrap();
    assert_eq!(fixture.code(&once), 0);
    assert_eq!(runs(), 3);
    let again = fixture.refused(0, &once);
    assert!(again.contains("tenure: done already: nothing to do\n"), "{again}");
    assert_eq!(runs(), 3, "it has succeeded within the hour");
    let handle = fixture.said(&["acquire", "x"]);
    assert_eq!(fixture.code(&[&["run", "-n"], &once[2..]].concat()), 0, "nor is the lock wanted");
    fixture.said(&["release", handle.trim()]);
    for bad in ["0", "366d"] {
        let message = fixture.refused(64, &["run", "--once-per", bad, "x", "--", "true"]);
        assert!(message.contains("--once-per") && message.contains("it must be "), "{message}");
    }
}

/// Without a shell, the process that stops a command continues it; TERM ends it also while it is stopped.
fn a_stopped_command_is_continued(fixture: &Fixture) {
    let state = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    for (signals, code) in [(&[Signal::CONT, Signal::USR1][..], 9), (&[Signal::TERM], 128 + 15)] {
        let script = "trap 'kill -KILL $! 2>&-; exit 9' USR1; sleep 60 & echo held; echo $$; wait";
        let mut command = Command::new("setsid");
        command.args([env!("CARGO_BIN_EXE_tenure"), "run", "x", "--", "sh", "-c", script]);
        command.env("TENURE_URL", &fixture.url).stdin(Stdio::null());
        let mut holder = Holder::begin(&mut command);
        let pid = holder.line().trim().to_owned();
        holder.signal(Signal::TSTP);
        until("stopped", || state(&pid).contains(") T "));
        for signal in signals {
            holder.signal(*signal);
        }
        assert_eq!(holder.end().0, code);
    }
}

fn a_lock_is_kept_for_its_least_time(fixture: &Fixture) {
    assert_eq!(fixture.code(&["run", "--at-least", "1s", "x", "--", "true"]), 0);
    assert_eq!(fixture.code(&["run", "-n", "x", "--", "true"]), 75);
    assert!(fixture.said(&["show", "x"]).contains("    released, and kept for its least time\n"));
    assert_eq!(fixture.code(&["run", "-w", "10s", "x", "--", "true"]), 0);
}

/// A command that could not be run does not keep others waiting.
fn a_lock_is_not_kept_for_nothing(fixture: &Fixture) {
    assert_eq!(fixture.code(&["run", "--at-least", "1h", "x", "--", "./is not there"]), 127);
    assert_eq!(fixture.said(&["show", "x"]), "x: free\n");
}

/// The holder is shown also after it has ended.
fn a_lock_that_is_kept_shows_its_holder(fixture: &Fixture) {
    assert_eq!(fixture.code(&["run", "--at-least", "1h", "x", "--", "true"]), 0);
    let lock = fixture.json(&["show", "--json", "x"]);
    assert_eq!(lock["holders"][0]["about"]["program"], "true", "{lock}");
}
