//! `tenure run` on a store that several commands share: a real Redis.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tenure_testkit::Server;

fn tenure(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.env("TENURE_URL", server.url()).arg("run").args(arguments);
    command
}

fn output(server: &Server, arguments: &[&str]) -> Output {
    tenure(server, arguments).output().unwrap()
}

fn code(server: &Server, arguments: &[&str]) -> i32 {
    output(server, arguments).status.code().unwrap()
}

/// A command that holds the lock: it has said so.
struct Holder(Child);

impl Holder {
    fn start(server: &Server, arguments: &[&str]) -> Self {
        Self::begin(tenure(server, arguments))
    }

    fn begin(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        Self(child)
    }

    fn signal(&self, signal: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    fn end(mut self) -> i32 {
        self.0.wait().unwrap().code().unwrap()
    }
}

#[expect(clippy::disallowed_methods, reason = "the test judges by its own clock")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the test looks again and again")]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(20), "never {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_alive(pid: &str) -> bool {
    // A process that has ended, and that nobody has asked for, is as good as gone.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

const WAITS: &str = "echo held; exec sleep 60";

/// R28: busy is told by the exit status, and by a sentence.
#[test]
fn a_lock_that_is_held_is_75_or_what_was_asked_for() {
    let server = Server::start();
    let holder = Holder::start(&server, &["x", "--", "sh", "-c", WAITS]);
    let busy = output(&server, &["-n", "x", "--", "echo", "no"]);
    assert_eq!((busy.status.code(), busy.stdout.len()), (Some(75), 0));
    assert!(String::from_utf8_lossy(&busy.stderr).contains("`x` is held by another"));
    assert_eq!(code(&server, &["-w", "50ms", "-E", "3", "x", "--", "true"]), 3);
    assert_eq!(code(&server, &["y", "--", "true"]), 0, "another name is free");
    holder.signal("-TERM");
    assert_eq!(holder.end(), 128 + 15);
    assert_eq!(code(&server, &["-w", "10s", "x", "--", "true"]), 0);
}

/// R28: signals go to the command, from the first moment.
#[test]
fn signals_are_passed_on() {
    let server = Server::start();
    let script = "trap 'exit 9' TERM; echo held; while :; do sleep 0.05; done";
    let holder = Holder::start(&server, &["x", "--", "sh", "-c", script]);
    let mut waiting = tenure(&server, &["x", "--", "echo", "no"]).spawn().unwrap();
    let show = || server.connect().unwrap().command(&["ZCARD", "tenure:{x}:q"]).unwrap();
    until("queued", || format!("{:?}", show()).contains('1'));
    let pid = waiting.id().to_string();
    Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert_eq!(waiting.wait().unwrap().code(), Some(128 + 2), "ended while it waited");
    assert!(format!("{:?}", show()).contains('0'), "and left the queue");
    holder.signal("-TERM");
    assert_eq!(holder.end(), 9, "the command decides what a signal means");
}

/// R26: when the lock cannot be kept, the command and all it has started end before the lease does.
#[test]
fn a_command_is_ended_before_its_lease_when_the_server_is_gone() {
    let mut server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let script = format!(
        "trap '' TERM; sleep 60 & echo $! $$ > {}; echo held; while :; do sleep 1; done",
        pids.display()
    );
    let started = now();
    let arguments = ["--lease", "3s", "--kill-after", "500ms", "x", "--", "sh", "-c", &script];
    let holder = Holder::start(&server, &arguments);
    let pids = std::fs::read_to_string(pids).unwrap();
    server.kill();
    assert_eq!(holder.end(), 76);
    // Renewed a second after the start at the latest; from then on it has the lease.
    let ended = started.elapsed();
    assert!(ended < Duration::from_millis(4_000), "{ended:?}");
    pids.split_whitespace().for_each(|pid| until("dead", || !is_alive(pid)));
}

/// R28: what the kernel kills leaves the lock to its lease, and no longer.
#[test]
fn a_killed_command_leaves_the_lock_for_its_lease() {
    let server = Server::start();
    let script = "echo held; exec sleep 5";
    let holder = Holder::start(&server, &["--lease", "1s", "x", "--", "sh", "-c", script]);
    holder.signal("-KILL");
    assert_eq!(code(&server, &["-n", "x", "--", "true"]), 75);
    assert_eq!(code(&server, &["-w", "10s", "x", "--", "true"]), 0);
}

#[test]
fn some_share_and_some_are_alone() {
    let server = Server::start();
    let reader = Holder::start(&server, &["-s", "x", "--", "sh", "-c", WAITS]);
    assert_eq!(code(&server, &["-s", "-n", "x", "--", "true"]), 0);
    assert_eq!(code(&server, &["-x", "-n", "x", "--", "true"]), 75);
    let mixed = output(&server, &["-n", "x", "--", "true"]);
    assert_eq!(mixed.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&mixed.stderr).contains("in use as a read-write lock"));
    reader.signal("-TERM");
    reader.end();

    let one = Holder::start(&server, &["--limit", "2", "y", "--", "sh", "-c", WAITS]);
    let two = Holder::start(&server, &["--limit", "2", "y", "--", "sh", "-c", WAITS]);
    assert_eq!(code(&server, &["--limit", "2", "-n", "y", "--", "true"]), 75);
    assert_eq!(code(&server, &["--limit", "3", "-n", "y", "--", "true"]), 0, "a higher limit");
    for holder in [one, two] {
        holder.signal("-TERM");
        holder.end();
    }
}

/// R13, R14.
#[test]
fn a_job_runs_once_per_time_and_keeps_its_lock_for_the_least() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let append = format!("echo ran >> {}; test -e {}.ok", log.display(), log.display());
    let once = ["--once-per", "1h", "x", "--", "sh", "-c", &append];
    let runs = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
    assert_eq!(code(&server, &once), 1);
    assert_eq!(code(&server, &once), 1, "it failed, so it is tried again");
    std::fs::write(folder.path().join("log.ok"), "").unwrap();
    assert_eq!(code(&server, &once), 0);
    assert_eq!(runs(), 3);
    assert_eq!(code(&server, &once), 0);
    assert_eq!(runs(), 3, "it has succeeded within the hour");

    assert_eq!(code(&server, &["--at-least", "1s", "y", "--", "true"]), 0);
    assert_eq!(code(&server, &["-n", "y", "--", "true"]), 75);
    assert_eq!(code(&server, &["-w", "10s", "y", "--", "true"]), 0);
}

/// The command has no need of the password in the URL.
#[test]
fn the_environment_tells_the_lock_and_not_the_store() {
    let server = Server::start();
    let script = "echo $TENURE_NAME ${TENURE_URL:-none}; test $TENURE_DEADLINE -gt $(date +%s)000";
    let output = output(&server, &["x", "--", "sh", "-c", script]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "x none\n");
    assert!(output.status.success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.env_remove("TENURE_URL").env("REDIS_URL", "redis://:secret@127.0.0.1:1");
    let refused = command.args(["run", "x", "--", "true"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(69));
    assert!(!String::from_utf8_lossy(&refused.stderr).contains("secret"));
}

/// I1: two that fight for one lock never overlap.
#[test]
fn two_that_fight_never_overlap() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    std::fs::write(&count, "0").unwrap();
    let script = format!("n=$(cat {0}); echo $((n + 1)) > {0}", count.display());
    let rounds = 100;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..rounds {
                    assert_eq!(code(&server, &["-w", "20s", "x", "--", "sh", "-c", &script]), 0);
                }
            });
        }
    });
    assert_eq!(std::fs::read_to_string(&count).unwrap().trim(), (2 * rounds).to_string());
}

/// R27: one leads at a time; the next follows when it ends, and bad terms are refused.
#[test]
fn a_command_runs_while_it_leads() {
    let server = Server::start();
    let elect = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.env("TENURE_URL", server.url()).arg("elect").args(arguments);
        command
    };
    let first = elect(&["--candidate", "one", "x", "--", "sh", "-c", WAITS]);
    let first = Holder::begin(first);
    let mut second = elect(&["--candidate", "two", "x", "--", "echo", "second"]);
    let second = second.stdout(Stdio::piped()).spawn().unwrap();
    let show = || server.connect().unwrap().command(&["ZCARD", "tenure:{x}:q"]).unwrap();
    until("standing", || format!("{:?}", show()).contains('1'));
    first.signal("-TERM");
    assert_eq!(first.end(), 128 + 15);
    let second = second.wait_with_output().unwrap();
    assert_eq!((second.status.code(), &*second.stdout), (Some(0), &b"second\n"[..]));
    let wrong = elect(&["--renew-deadline", "20s", "x", "--", "true"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(64));
}
