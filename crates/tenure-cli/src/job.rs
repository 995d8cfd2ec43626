//! A command that runs under a lock, from its start to its end.

use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use rustix::process::Signal;
use tenure::Guard;

use crate::child::Child;
use crate::exit::Exit;
use crate::signals::Signals;
use crate::store;
use crate::voice::say;

/// What to do when the lock is lost.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// End the command, and all that it has started, before another can have the lock
    Kill,
    /// Say so, and let it go on
    Warn,
    /// Let it go on
    Ignore,
}

/// A command, and how it is to end.
pub(crate) struct Job<'a> {
    pub(crate) command: &'a [OsString],
    /// Where it finds the store, if somebody has named one.
    pub(crate) url: Option<String>,
    pub(crate) on_lost: OnLost,
    /// How long it has to end itself.
    pub(crate) grace: Duration,
}

impl Job<'_> {
    /// Runs it under a lock: its status, or what is to be told instead. An error if the lock was
    /// lost.
    pub(crate) async fn run(
        &self,
        guard: &Guard,
        signals: &mut Signals,
    ) -> Result<Result<u8, ExitCode>, Exit> {
        match self.start(guard) {
            Ok(child) => self.supervise(guard, child, signals).await.map(Ok),
            Err(error) => Ok(Err(self.cannot_run(&error))),
        }
    }

    fn start(&self, guard: &Guard) -> io::Result<Child> {
        let (program, rest) = self.command.split_first().expect("clap requires a command");
        let deadline = now() + guard.remaining();
        let deadline = deadline.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis());
        let mut command = Command::new(program);
        command
            .args(rest)
            .env("TENURE_NAME", guard.name().as_str())
            .env("TENURE_OWNER", guard.owner().to_string())
            .env("TENURE_FENCE", guard.fence().to_string())
            .env("TENURE_DEADLINE", deadline.to_string())
            .envs(self.url.iter().map(|url| (store::VARIABLE, url)));
        Child::start(&mut command)
    }

    /// Waits for the command, and passes signals on to it. When the lock is being lost, it is
    /// ended.
    async fn supervise(
        &self,
        guard: &Guard,
        mut child: Child,
        signals: &mut Signals,
    ) -> Result<u8, Exit> {
        let grace = self.grace;
        tokio::select! {
            code = accompany(&mut child, signals) => return Ok(code),
            () = guard.runs_out(grace), if self.on_lost != OnLost::Ignore => {}
        }
        let name = guard.name();
        say(format_args!("`{name}` is being lost: it was not renewed in time, or taken away"));
        if self.on_lost == OnLost::Warn {
            return Ok(accompany(&mut child, signals).await);
        }
        child.signal(Signal::TERM);
        // A stopped process does not end.
        child.signal(Signal::CONT);
        if tokio::time::timeout(grace, accompany(&mut child, signals)).await.is_err() {
            child.signal(Signal::KILL);
            accompany(&mut child, signals).await;
        }
        // What it has started may have outlived it.
        child.signal(Signal::KILL);
        Err(Exit::Lost)
    }

    fn cannot_run(&self, error: &io::Error) -> ExitCode {
        let program = self.command[0].display();
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::NotFound,
            _ => Exit::CannotRun,
        };
        exit.because(&format!("could not run `{program}`: {error}"))
    }
}

/// Passes signals on to the command until it ends; its status.
async fn accompany(child: &mut Child, signals: &mut Signals) -> u8 {
    loop {
        let signal = tokio::select! {
            code = child.end() => return code,
            signal = signals.next() => signal,
        };
        child.signal(signal);
    }
}

#[expect(clippy::disallowed_methods, reason = "told to the command, by the calendar")]
fn now() -> SystemTime {
    SystemTime::now()
}
