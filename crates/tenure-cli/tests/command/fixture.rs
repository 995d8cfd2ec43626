//! A store for each test, and the command on it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tenure_testkit::Server;

/// Makes tests of cases: each runs on a store without a server, and on a real Redis.
macro_rules! on_every_store {
    ($($case:ident),+ $(,)?) => {
        mod local {
            $(#[test] fn $case() { super::$case(&crate::fixture::Fixture::local()); })+
        }
        mod redis {
            $(#[test] fn $case() { super::$case(&crate::fixture::Fixture::redis()); })+
        }
    };
}

/// A command that holds its lock until it is ended.
pub(crate) const WAITS: &str = "echo held; exec sleep 60";

/// A store for one test.
pub(crate) struct Fixture {
    pub(crate) url: String,
    pub(crate) store: Store,
}

pub(crate) enum Store {
    Folder(#[expect(dead_code, reason = "the folder goes with it")] TempDir),
    Server(Server),
}

impl Fixture {
    pub(crate) fn local() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("local://{}/store", folder.path().display());
        Self { url, store: Store::Folder(folder) }
    }

    pub(crate) fn redis() -> Self {
        Self::of(Server::start())
    }

    pub(crate) fn of(server: Server) -> Self {
        Self { url: server.url(), store: Store::Server(server) }
    }

    pub(crate) fn is_local(&self) -> bool {
        matches!(self.store, Store::Folder(_))
    }

    pub(crate) fn server(&mut self) -> &mut Server {
        match &mut self.store {
            Store::Server(server) => server,
            Store::Folder(_) => panic!("there is no server"),
        }
    }

    pub(crate) fn tenure(&self, arguments: &[&str]) -> Command {
        let mut command = tenure(arguments);
        command.env("TENURE_URL", &self.url);
        command
    }

    /// Started with signals as `env` sets them: it replaces itself with the command.
    pub(crate) fn with_signals(&self, option: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("env");
        command.arg(option).arg(env!("CARGO_BIN_EXE_tenure")).args(arguments);
        command.env("TENURE_URL", &self.url).env_remove("REDIS_URL").stdin(Stdio::null());
        command
    }

    pub(crate) fn output(&self, arguments: &[&str]) -> Output {
        self.tenure(arguments).output().unwrap()
    }

    pub(crate) fn code(&self, arguments: &[&str]) -> i32 {
        self.output(arguments).status.code().unwrap()
    }

    /// The output of a command that must succeed without any message.
    pub(crate) fn said(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.said(arguments)).unwrap()
    }

    /// The message of a command that must fail with this status, without data.
    pub(crate) fn refused(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Waits until a lock has so many waiters.
    pub(crate) fn until_waiting(&self, name: &str, count: u64) {
        until("waiting", || self.json(&["show", "--json", name])["waiting"] == count);
    }

    /// The owner of a lock.
    pub(crate) fn owner(&self, name: &str) -> String {
        let lock = self.json(&["show", "--json", name]);
        lock["holders"][0]["owner"].as_str().unwrap().to_owned()
    }
}

/// The command, without a store.
pub(crate) fn tenure(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.env_remove("TENURE_URL").env_remove("REDIS_URL").stdin(Stdio::null()).args(arguments);
    command
}

/// A command that holds its lock, as it has printed.
pub(crate) struct Holder {
    child: Child,
    /// Its further output.
    output: BufReader<ChildStdout>,
    /// Its messages.
    talk: BufReader<ChildStderr>,
}

impl Holder {
    pub(crate) fn start(fixture: &Fixture, arguments: &[&str]) -> Self {
        Self::begin(&mut fixture.tenure(arguments))
    }

    pub(crate) fn begin(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let talk = BufReader::new(child.stderr.take().unwrap());
        let mut holder = Self { child, output, talk };
        if holder.line() != "held\n" {
            panic!("{:?}", holder.end());
        }
        holder
    }

    /// Its pid.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to it, and not to its descendants.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// The guardian.
    pub(crate) fn guardian(&self) -> String {
        let guardian = children(&self.pid()).remove(0);
        until_watching(&guardian);
        guardian
    }

    /// Whether the command has ended.
    pub(crate) fn command_has_ended(&self) -> bool {
        children(&children(&self.pid())[0]).iter().all(|pid| !is_alive(pid))
    }

    /// Its exit status, and its messages.
    pub(crate) fn end(mut self) -> (i32, String) {
        let mut talk = String::new();
        self.talk.read_to_string(&mut talk).unwrap();
        (self.child.wait().unwrap().code().unwrap(), talk)
    }

    /// Ends it by TERM.
    pub(crate) fn stop(self) {
        self.signal(Signal::TERM);
        assert_eq!(self.end(), (128 + 15, String::new()));
    }

    /// Kills it, and none of its descendants. Returns its pipes.
    pub(crate) fn kill(mut self) -> (BufReader<ChildStdout>, BufReader<ChildStderr>) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        (self.output, self.talk)
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// The next message.
    pub(crate) fn sentence(&mut self) -> String {
        let mut line = String::new();
        self.talk.read_line(&mut line).unwrap();
        line
    }
}

/// Makes commands wait until the test opens it.
pub(crate) struct Gate {
    folder: TempDir,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// The file that opens it.
    pub(crate) fn file(&self) -> String {
        self.folder.path().join("open").display().to_string()
    }

    /// A script that holds its lock until the gate is open, and ends with this command.
    pub(crate) fn script(&self, end: &str) -> String {
        format!("echo held; until test -e '{}'; do sleep 0.02; done; {end}", self.file())
    }

    pub(crate) fn open(&self) {
        std::fs::write(self.file(), "").unwrap();
    }
}

#[expect(clippy::disallowed_methods, reason = "the test judges by its own clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Lets time pass, where there is no event to wait for.
#[expect(clippy::disallowed_methods, reason = "only time is to pass")]
pub(crate) fn pass(time: Duration) {
    std::thread::sleep(time);
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    assert!(becomes_so(&mut is_so), "never {what}");
}

/// Whether a condition holds within a time in which every expected event has come.
pub(crate) fn becomes_so(is_so: impl FnMut() -> bool) -> bool {
    becomes_so_within(Duration::from_secs(20), is_so)
}

#[expect(clippy::disallowed_methods, reason = "the test polls")]
pub(crate) fn becomes_so_within(time: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let started = now();
    while !is_so() {
        if started.elapsed() > time {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Whether a process lives. A zombie without threads does not.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let has_threads =
        || std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 1);
    stat.is_ok_and(|stat| !stat.contains(") Z ") || has_threads())
}

/// The children of the main thread of a process.
pub(crate) fn children(pid: &str) -> Vec<String> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    children.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// Waits until a guardian has reported the command's start: after that it has threads.
pub(crate) fn until_watching(guardian: &str) {
    let threads = || std::fs::read_dir(format!("/proc/{guardian}/task")).unwrap().count();
    until("watching", || threads() > 1);
}

/// Sends a signal to a process, which must exist.
pub(crate) fn signal(pid: &str, signal: Signal) {
    kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), signal).unwrap();
}
