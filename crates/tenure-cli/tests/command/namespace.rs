//! PID namespaces, as containers have them.

use std::process::{Command, Stdio};

use rustix::process::{Signal, getuid};

use crate::fixture::{Fixture, Holder, WAITS, children, signal, until};

on_every_store! {
    an_interrupt_ends_the_first_process,
    an_interrupt_ends_the_first_process_while_it_waits,
}

/// Runs `tenure` as the first process of a PID namespace.
fn first(fixture: &Fixture, options: &[&str], arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", "unshare", "--pid", "--fork"]);
    if !getuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(options).arg(env!("CARGO_BIN_EXE_tenure")).args(arguments);
    command.env("TENURE_URL", &fixture.url).env_remove("REDIS_URL").stdin(Stdio::null());
    command
}

/// R28: ^C ends a command in a container: the kernel does not let a first process end by its own signal, so it is the
/// status 130.
fn an_interrupt_ends_the_first_process(fixture: &Fixture) {
    let run = ["run", "x", "--", "sh", "-c", WAITS];
    let holder = Holder::begin(&mut first(fixture, &["--mount-proc"], &run));
    signal(&children(&holder.pid())[0], Signal::INT);
    assert_eq!(holder.end(), (128 + 2, String::new()));
    assert_eq!(fixture.said(&["show", "x"]), "x: free\n");
}

fn an_interrupt_ends_the_first_process_while_it_waits(fixture: &Fixture) {
    fixture.said(&["acquire", "x"]);
    let mut waiting = first(fixture, &["--mount-proc"], &["run", "x", "--", "echo", "no"]);
    let mut waiting = waiting.spawn().unwrap();
    fixture.until_waiting("x", 1);
    signal(&children(&waiting.id().to_string())[0], Signal::INT);
    assert_eq!(waiting.wait().unwrap().code(), Some(128 + 2));
}

/// I1: a namespace with the outer /proc, where all pids are others: the command and its descendants end, and no other
/// process.
#[test]
fn processes_are_known_by_their_own_numbers() {
    let fixture = Fixture::redis();
    let folder = tempfile::tempdir().unwrap();
    let logs = ["command", "stray", "orphan"].map(|name| folder.path().join(name));
    let write = |log: &std::path::Path| {
        format!("trap '' TERM; while :; do echo >> '{}'; sleep 0.02; done", log.display())
    };
    let script = format!(
        "setsid sh -c \"{}\" & (setsid sh -c \"{}\" &); echo held; {}",
        write(&logs[1]),
        write(&logs[2]),
        write(&logs[0])
    );
    let run = ["run", "--kill-after", "200ms", "x", "--", "sh", "-c", &script];
    // Not the first process of its namespace, whose end would end all the others.
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork"]);
    if !getuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let shell = "\"$0\" \"$@\"; code=$?; sleep 1; exit $code";
    command.args(["sh", "-c", shell, env!("CARGO_BIN_EXE_tenure")]).args(run);
    command.env("TENURE_URL", &fixture.url).env_remove("REDIS_URL").stdin(Stdio::null());
    let holder = Holder::begin(&mut command);
    let size = || logs.each_ref().map(|log| std::fs::metadata(log).map_or(0, |data| data.len()));
    until("written", || size().iter().all(|&size| size > 0));
    fixture.said(&["release", "--force", "x", "--reason", "a test", "--yes"]);
    let (shell, first) = (holder.pid(), children(&holder.pid()).remove(0));
    let tenure_has_ended = || children(&first).iter().all(|pid| command_of(pid) != "tenure");
    until("ended", tenure_has_ended);
    let ended = size();
    assert_eq!(holder.end().0, 76, "{shell}");
    assert_eq!(size(), ended);
}

fn command_of(pid: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}
