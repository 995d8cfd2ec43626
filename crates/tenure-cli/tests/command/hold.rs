//! `eval "$(tenure hold NAME)"`: a lock for the rest of a script.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::fixture::{Fixture, Gate, Holder, is_alive, signal, until};

on_every_store! {
    a_script_holds_a_lock_until_it_ends,
    a_script_that_is_killed_holds_nothing,
    a_lock_that_is_not_acquired_fails_in_the_script,
    a_script_releases_its_lock,
    a_script_that_loses_its_lock_is_ended,
    a_script_that_loses_its_lock_may_go_on,
    a_script_may_hold_several_locks,
    a_subshell_in_between_is_not_the_shell,
    a_script_that_ends_while_it_waits_leaves_the_queue,
    a_program_that_replaces_the_script_keeps_the_lock,
    code_that_no_shell_reads_holds_nothing,
    the_holder_itself_releases,
    a_loss_leaves_the_other_locks_of_a_container_alone,
}

/// A script in which `tenure` is the command.
fn script(fixture: &Fixture, script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("tenure() {{ \"$TENURE\" \"$@\"; }}\n{script}")]);
    shell.env("TENURE", env!("CARGO_BIN_EXE_tenure")).env("TENURE_URL", &fixture.url);
    shell.env_remove("REDIS_URL").stdin(Stdio::null());
    shell
}

fn until_free(fixture: &Fixture, name: &str) {
    until("free", || fixture.said(&["show", name]) == format!("{name}: free\n"));
}

/// A script that holds `x`, with these options, until a gate is open.
fn holder(fixture: &Fixture, options: &str, gate: &Gate) -> Holder {
    let held = gate.script("echo went on");
    let text = format!("eval \"$(\"$TENURE\" hold {options} x)\" || exit; {held}");
    Holder::begin(&mut script(fixture, &text))
}

/// I1: the lock is held beyond its lease, and under a name that a person knows.
fn a_script_holds_a_lock_until_it_ends(fixture: &Fixture) {
    let gate = Gate::new();
    let print =
        "echo $TENURE_NAME; echo $TENURE_OWNER; echo $TENURE_FENCE; echo $TENURE_HANDLE; echo $$";
    let name = "it's \"x\" $y";
    let text = format!(
        "eval \"$(\"$TENURE\" hold --lease 2s --note 'a note' '{}')\" || exit; echo held; {print}; {}",
        name.replace('\'', r"'\''"),
        gate.script("exit 3")
    );
    let mut holder = Holder::begin(&mut script(fixture, &text));
    let lines: Vec<_> = (0..5).map(|_| holder.line().trim_end().to_owned()).collect();
    let lock = fixture.json(&["show", "--json", name]);
    let held = &lock["holders"][0];
    assert_eq!(lines[0], name);
    assert_eq!(lines[1], held["owner"]);
    assert_eq!(lines[2], held["fence"].to_string());
    assert!(lines[3].starts_with("tenure1:"), "{lines:?}");
    assert_eq!(
        (&held["about"]["program"], &held["about"]["note"]),
        (&"sh".into(), &"a note".into())
    );
    assert_eq!(lines[4], held["about"]["pid"].to_string());
    let second = fixture.output(&["run", "-w", "3s", name, "--", "true"]);
    assert_eq!(second.status.code(), Some(75), "{second:?} {:?}", {
        gate.open();
        holder.end()
    });
    gate.open();
    assert_eq!(holder.end().0, 3);
    assert_eq!(fixture.code(&["run", "-w", "10s", name, "--", "true"]), 0);
}

fn a_script_that_is_killed_holds_nothing(fixture: &Fixture) {
    let holder = holder(fixture, "--lease 1h", &Gate::new());
    holder.kill();
    assert_eq!(fixture.code(&["run", "-w", "10s", "x", "--", "true"]), 0);
}

/// `eval ""` would succeed, so every failure is code that fails.
fn a_lock_that_is_not_acquired_fails_in_the_script(fixture: &Fixture) {
    let handle = fixture.said(&["acquire", "x"]);
    for (options, code, sentence) in [
        ("-n x", 75, "tenure: `x` is not free: held by "),
        ("-w 50ms -E 9 x", 9, "tenure: `x` was not free within 50 ms: held by "),
        ("--lease soon x", 64, "`soon` is no time"),
        ("", 64, "required arguments were not provided"),
        ("--url redis://127.0.0.1:1 -n x", 69, "tenure: "),
    ] {
        for text in [
            format!("eval \"$(tenure hold {options})\" || exit; echo went on"),
            format!("code=$(tenure hold {options}) || exit; eval \"$code\"; echo went on"),
        ] {
            let output = script(fixture, &text).output().unwrap();
            assert_eq!(
                (output.status.code(), &*output.stdout),
                (Some(code), &b""[..]),
                "{output:?}"
            );
            let talk = String::from_utf8(output.stderr).unwrap();
            assert!(talk.contains(sentence), "{talk}");
        }
    }
    fixture.said(&["release", handle.trim()]);
}

/// R4: a release is no loss: the script goes on, and the process in the background ends.
fn a_script_releases_its_lock(fixture: &Fixture) {
    let text = "eval \"$(tenure hold --lease 1s -v x)\" || exit
        tenure release \"$TENURE_HANDLE\" || exit
        tenure run -n x -- sleep 2 || exit
        tenure release \"$TENURE_HANDLE\"; echo $?";
    let output = script(fixture, text).output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"76\n"[..]), "{output:?}");
    let talk = String::from_utf8(output.stderr).unwrap();
    assert!(talk.starts_with("tenure: holding `x` with fence "), "{talk}");
    assert!(!talk.contains("was lost"), "{talk}");
    assert_eq!(fixture.said(&["ls", "x"]).lines().count(), 1, "only the header");
}

/// R26: the shell gets TERM, and the program that it runs does, too.
fn a_script_that_loses_its_lock_is_ended(fixture: &Fixture) {
    let text =
        "eval \"$(\"$TENURE\" hold x)\" || exit; echo held; sleep 60 & echo $!; wait; sleep 60";
    let mut command = script(fixture, text);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        line
    };
    assert_eq!(line(), "held\n");
    let program = line();
    fixture.said(&["release", "--force", "x", "--reason", "a test", "--yes"]);
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    until("ended", || !is_alive(program.trim()));
    let mut talk = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut talk).unwrap();
    assert!(talk.starts_with("tenure: `x` was lost: its release was forced by "), "{talk}");
    assert!(talk.ends_with(": a test\n"), "{talk}");
}

fn a_script_that_loses_its_lock_may_go_on(fixture: &Fixture) {
    for (on_lost, sentence) in [("warn", "tenure: `x` was lost: "), ("ignore", "")] {
        let gate = Gate::new();
        let mut holder = holder(fixture, &format!("--on-lost {on_lost}"), &gate);
        fixture.said(&["release", "--force", "x", "--reason", "a test", "--yes"]);
        if on_lost == "warn" {
            let talk = holder.sentence();
            assert!(talk.starts_with(sentence), "{talk}");
        }
        gate.open();
        assert_eq!(holder.line(), "went on\n");
        assert_eq!(holder.end(), (0, String::new()), "{on_lost}");
    }
}

/// Each has a handle of its own, of any kind.
fn a_script_may_hold_several_locks(fixture: &Fixture) {
    let text = "eval \"$(tenure hold -s a)\" || exit; first=$TENURE_HANDLE
        eval \"$(tenure hold --limit 2 b)\" || exit; eval \"$(tenure hold c)\" || exit
        tenure run -s -n a -- true && tenure run --limit 2 -n b -- true || exit
        tenure run -x -n a -- true; echo $?; tenure run -n c -- true; echo $?
        tenure release \"$first\" && tenure run -x -n a -- echo released";
    let output = script(fixture, text).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "75\n75\nreleased\n", "{output:?}");
    ["a", "b", "c"].iter().for_each(|name| until_free(fixture, name));
}

/// Its pipe is ours: it ends with the command substitution.
fn a_subshell_in_between_is_not_the_shell(fixture: &Fixture) {
    let gate = Gate::new();
    let text =
        format!("eval \"$(cd /; (\"$TENURE\" hold x; :); :)\" || exit; {}", gate.script("exit"));
    let holder = Holder::begin(&mut script(fixture, &text));
    assert_eq!(fixture.code(&["run", "-w", "500ms", "x", "--", "true"]), 75);
    gate.open();
    assert_eq!(holder.end().0, 0);
    until_free(fixture, "x");
    // In a subshell that goes on, it is that one.
    let text = "(eval \"$(tenure hold x)\" && tenure run -n x -- true); echo $?; tenure run -w 10s x -- echo free";
    let output = script(fixture, text).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "75\nfree\n", "{output:?}");
}

fn a_script_that_ends_while_it_waits_leaves_the_queue(fixture: &Fixture) {
    let handle = fixture.said(&["acquire", "x"]);
    for end in [Signal::TERM, Signal::KILL] {
        let mut waiting =
            script(fixture, "eval \"$(tenure hold x)\"; echo went on").spawn().unwrap();
        fixture.until_waiting("x", 1);
        signal(&waiting.id().to_string(), end);
        waiting.wait().unwrap();
        fixture.until_waiting("x", 0);
    }
    fixture.said(&["release", handle.trim()]);
}

/// It is the same process.
fn a_program_that_replaces_the_script_keeps_the_lock(fixture: &Fixture) {
    let text = "eval \"$(\"$TENURE\" hold x)\" || exit; echo held; exec sleep 60";
    let holder = Holder::begin(&mut script(fixture, text));
    assert_eq!(fixture.code(&["run", "-w", "500ms", "x", "--", "true"]), 75);
    holder.kill();
    until_free(fixture, "x");
}

/// The output goes to another program, to a file, or nowhere: no ancestor may be taken for the shell, and ended with the lock.
fn code_that_no_shell_reads_holds_nothing(fixture: &Fixture) {
    for hold in [
        "eval \"$(\"$TENURE\" hold x | cat)\"",
        "\"$TENURE\" hold x >/dev/null",
        "\"$TENURE\" hold x >&-",
    ] {
        let text = format!("{hold} || {{ echo status $?; exit; }}; echo went on");
        let output = script(fixture, &text).output().unwrap();
        let (said, message) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        let is_closed = hold.ends_with(">&-");
        assert!(
            said == "status 64\n" || is_closed && said.starts_with("status "),
            "{hold}: {said} {message}"
        );
        assert!(message.contains("no shell reads the code"), "{message}");
        assert_eq!(fixture.said(&["show", "x"]), "x: free\n");
    }
}

/// The process that holds the lock has the login, and knows the store: the script need not name them to release it.
fn the_holder_itself_releases(fixture: &Fixture) {
    let name = "a\nb";
    let text = format!(
        "eval \"$(\"$TENURE\" hold '{name}')\" || exit
         [ \"$TENURE_NAME\" = '{name}' ] || echo \"another name: $TENURE_NAME\"
         TENURE_URL=redis://127.0.0.1:1 tenure release \"$TENURE_HANDLE\"; echo status $?
         tenure release \"$TENURE_HANDLE\"; echo status $?"
    );
    let output = script(fixture, &text).output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "status 0\nstatus 76\n",
        "{:?}",
        output.stderr
    );
}

/// In a container the script is the first process, and so the parent of its holders: one lock that is lost ends no other.
fn a_loss_leaves_the_other_locks_of_a_container_alone(fixture: &Fixture) {
    let text = "eval \"$(\"$TENURE\" hold x)\" || exit; eval \"$(\"$TENURE\" hold y)\" || exit
                tenure release --force x --reason test --yes 2>/dev/null
                sleep 1; tenure show y | head -n 1";
    let inner = script(fixture, text);
    let mut outer = Command::new("unshare");
    outer
        .args(["--fork", "--pid", "--mount-proc", "--"])
        .arg(inner.get_program())
        .args(inner.get_args());
    outer.env("TENURE", env!("CARGO_BIN_EXE_tenure")).env("TENURE_URL", &fixture.url);
    let output = outer.env_remove("REDIS_URL").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains("y: ") && !said.contains("free"),
        "{said} {:?}",
        String::from_utf8(output.stderr)
    );
}
