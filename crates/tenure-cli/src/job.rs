//! A command that runs under a lock, from its start to its end.

use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use rustix::io::Errno;
use rustix::process::Signal;
use tenure::{Error, Guard, LockName, Lost, Released, WhyLost};

use crate::child::{Change, Child, Ending};
use crate::exit::Exit;
use crate::session::End;
use crate::signals::Signals;
use crate::voice::say;
use crate::{family, store, terminal};

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

/// What became of a command.
pub(crate) enum Outcome {
    Ended(Ending),
    /// It went on after the lock was lost, which has been told.
    EndedWithout(Ending),
    /// It could not be started; this has been told.
    NotStarted(ExitCode),
    /// It was ended, because the lock was lost.
    Lost,
}

impl Outcome {
    /// With which status the command has ended by itself.
    pub(crate) fn status(&self) -> Option<u8> {
        match self {
            Self::Ended(ending) | Self::EndedWithout(ending) => Some(ending.status),
            Self::NotStarted(_) | Self::Lost => None,
        }
    }
}

impl From<Outcome> for End {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Ended(ending) | Outcome::EndedWithout(ending) => {
                Self::of(ending.status, ending.signal)
            }
            Outcome::NotStarted(told) => Self::Status(told),
            Outcome::Lost => Self::Lost,
        }
    }
}

/// How long to wait for the release; the lease ends it otherwise.
const RELEASE_TIME: Duration = Duration::from_secs(5);

/// How often to look whether all have ended.
const LOOK: Duration = Duration::from_millis(20);

/// How long a process takes to end when it is killed. One that takes longer hangs in the kernel.
const DEATH: Duration = Duration::from_secs(5);

impl Job<'_> {
    /// Runs it under a lock.
    pub(crate) async fn run(&self, guard: &Guard, signals: &mut Signals) -> Outcome {
        match self.start(guard) {
            Ok(child) => self.supervise(guard, child, signals).await,
            Err(error) => Outcome::NotStarted(self.cannot_run(&error)),
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
        Child::start(&mut command).or_else(|error| match Errno::from_io_error(&error) {
            // A script that does not say what runs it is run by the shell, as `env` and `flock` do it.
            Some(Errno::NOEXEC) => Child::start(&mut self.by_shell(&command)),
            _ => Err(error),
        })
    }

    fn by_shell(&self, command: &Command) -> Command {
        let mut shell = Command::new("/bin/sh");
        let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        shell.arg("--").args(self.command).envs(set);
        shell
    }

    /// Waits for the command, and passes signals on to it. When the lock is being lost, it is
    /// ended.
    async fn supervise(&self, guard: &Guard, mut child: Child, signals: &mut Signals) -> Outcome {
        tokio::select! {
            ending = self.accompany(guard, &mut child, signals) => return Outcome::Ended(ending),
            () = guard.runs_out(self.grace), if self.on_lost != OnLost::Ignore => {}
        }
        match guard.ensure_held() {
            Err(lost) => say(lost),
            Ok(()) => {
                say(format_args!("`{}` is being lost: it was not renewed in time", guard.name()));
            }
        }
        if self.on_lost == OnLost::Warn {
            return Outcome::EndedWithout(self.accompany(guard, &mut child, signals).await);
        }
        self.end(guard, &mut child, signals).await;
        Outcome::Lost
    }

    /// Passes signals on to the command until it ends.
    async fn accompany(&self, guard: &Guard, child: &mut Child, signals: &mut Signals) -> Ending {
        loop {
            tokio::select! {
                change = child.next() => match change {
                    Change::Ended(ending) => {
                        child.bury(ending);
                        return ending;
                    }
                    Change::Stopped(signal) => self.stopped(guard, child, signal),
                },
                signal = signals.next() => match signal {
                    Signal::CHILD => family::forget_orphans(child.group),
                    // The command has the terminal, and somebody else in our job wanted it.
                    Signal::TTIN | Signal::TTOU if terminal::can_stop_job() => {
                        self.halt(guard, child);
                    }
                    Signal::TTIN | Signal::TTOU => {}
                    signal => child.pass_on(signal),
                },
            }
        }
    }

    /// The command was stopped. If it is the terminal that it wants, it gets it. If it was stopped
    /// there, so is the whole job. Otherwise it is somebody's business with the command alone.
    fn stopped(&self, guard: &Guard, child: &mut Child, signal: Option<Signal>) {
        let wants_terminal = matches!(signal, Some(Signal::TTIN | Signal::TTOU));
        // It may have got it since.
        if wants_terminal && (terminal::give(child.group) || terminal::is_with(child.group)) {
            child.go_on_with_terminal();
            return;
        }
        let is_of_terminal = signal.is_some_and(terminal::stops) && terminal::is_there();
        if !is_of_terminal && !terminal::is_with(child.group) {
            return;
        }
        if terminal::can_stop_job() {
            self.halt(guard, child);
        } else if !wants_terminal {
            // Nobody would continue us, nor it.
            child.signal(Signal::CONT);
        }
    }

    /// Stops the command and us, until the job is continued. Nobody renews the lock meanwhile.
    fn halt(&self, guard: &Guard, child: &mut Child) {
        let halted = child.halt();
        terminal::stop_job();
        if self.on_lost == OnLost::Kill && guard.is_lost() {
            // Another may have it by now: not one more step.
            child.signal_all(Signal::KILL);
        } else {
            child.go_on(&halted);
        }
    }

    /// Ends the command and all that it has started: first by asking, and by force when the time
    /// for that is over, or the lease.
    async fn end(&self, guard: &Guard, child: &mut Child, signals: &mut Signals) {
        let is_over = |lost: &Lost| lost.why() == WhyLost::LeaseEnded;
        let held = guard.ensure_held();
        if !held.as_ref().is_err_and(is_over) {
            child.signal_all(Signal::TERM);
            // A stopped process does not end.
            child.signal_all(Signal::CONT);
            tokio::select! {
                () = gone(child, signals) => return,
                () = pause(self.grace) => {}
                _ = guard.lost(), if held.is_ok() => {}
            }
        }
        let killed = async {
            while !family::living().is_empty() {
                child.signal_all(Signal::KILL);
                pause(LOOK / 4).await;
            }
        };
        let _ = tokio::time::timeout(DEATH, killed).await;
        let _ = tokio::time::timeout(DEATH, gone(child, signals)).await;
    }

    /// The end, after the lock has been released. If it was not held until then, the command's status
    /// is not the whole truth: it may have been lost while nobody could notice.
    pub(crate) async fn conclude(
        &self,
        outcome: Outcome,
        name: &LockName,
        release: impl Future<Output = Result<Released, Error>>,
    ) -> End {
        if matches!(outcome, Outcome::Lost | Outcome::EndedWithout(_)) {
            return outcome.into();
        }
        match tokio::time::timeout(RELEASE_TIME, release).await {
            Ok(Ok(Released::Now)) => {}
            Ok(Ok(Released::AlreadyLost)) => match self.on_lost {
                OnLost::Ignore => {}
                OnLost::Warn => say(format_args!("`{name}` was lost before the command ended")),
                OnLost::Kill => {
                    say(format_args!("`{name}` was lost before the command ended"));
                    return End::Lost;
                }
            },
            Ok(Err(error)) => say(format_args!("{error}; it is free when its lease ends")),
            Err(_) => say(format_args!(
                "the store did not answer when `{name}` was released; it is free when its lease ends"
            )),
        }
        outcome.into()
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

/// Waits until the command has ended, and all that it has started. Signals are passed on; it is not
/// left stopped.
async fn gone(child: &mut Child, signals: &mut Signals) {
    let mut is_buried = false;
    while !is_buried || !family::living().is_empty() {
        tokio::select! {
            change = child.next(), if !is_buried => match change {
                Change::Ended(ending) => {
                    child.bury(ending);
                    is_buried = true;
                }
                Change::Stopped(_) => child.signal(Signal::CONT),
            },
            signal = signals.next() => match signal {
                Signal::CHILD => family::forget_orphans(child.group),
                signal if terminal::stops(signal) => {}
                signal => child.pass_on(signal),
            },
            () = pause(LOOK), if is_buried => {}
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "between two looks, and until force is used")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

#[expect(clippy::disallowed_methods, reason = "told to the command, by the calendar")]
fn now() -> SystemTime {
    SystemTime::now()
}
