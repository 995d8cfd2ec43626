//! A command that runs under a lock, from its start to its end.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use tenure::{Error, Guard, LockName, Owner, Released, Tenure};

use crate::args::store;
use crate::exec::changes::Ending;
use crate::exec::child::Child;
use crate::exec::link::{Moment, OnKilled, Order};
use crate::exec::loss;
use crate::exec::session::End;
use crate::exec::signals::Signals;
use crate::exit::Exit;
use crate::view::format::fence;
use crate::view::output::say;

/// What to do when the lock is lost.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// End the command, and all processes that it has started, before the lease is over
    Kill,
    /// Report it, and let the command go on
    Warn,
    /// Let the command go on
    Ignore,
}

/// A command, and how it is ended.
pub(crate) struct Job<'a> {
    /// The store, which knows why a lock was lost.
    pub(crate) tenure: &'a Tenure,
    pub(crate) command: &'a [OsString],
    /// The store's URL for the command, if the store was named.
    pub(crate) url: Option<String>,
    pub(crate) on_lost: OnLost,
    /// The time between TERM and KILL.
    pub(crate) grace: Duration,
}

/// How a command ended.
pub(crate) enum Outcome {
    Ended(Ending),
    /// It went on after the lock was lost, which was reported.
    EndedWithout(Ending),
    /// It could not be started, which was reported.
    NotStarted(ExitCode),
    /// It was ended, because the lock was lost.
    Lost,
}

impl Outcome {
    /// The status with which the command has ended by itself.
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
            Outcome::NotStarted(code) => Self::Status(code),
            Outcome::Lost => Self::Lost,
        }
    }
}

/// How long to wait for the release; otherwise the lease ends the lock.
const RELEASE_TIME: Duration = Duration::from_secs(5);

impl Job<'_> {
    /// Runs the command under a lock.
    pub(crate) async fn run(&self, guard: &Guard, signals: &mut Signals) -> Outcome {
        // If `tenure` is killed, the lock stays with the command, if the engine can do that.
        let is_shared = match self.tenure.share_with_children() {
            Ok(is_shared) => is_shared,
            Err(error) => return Outcome::NotStarted(Exit::report(&error)),
        };
        match Child::start(&self.order(guard, is_shared), &self.variables(guard)) {
            Ok(child) => self.supervise(guard, child, signals).await,
            Err(error) => Outcome::NotStarted(self.cannot_run(&error)),
        }
    }

    fn order(&self, guard: &Guard, is_shared: bool) -> Order {
        let is_timed = self.on_lost == OnLost::Kill;
        let on_killed = match is_shared {
            true => OnKilled::Hold,
            false if is_timed => OnKilled::End,
            false => OnKilled::Leave,
        };
        let deadline = Moment::now().after(guard.remaining());
        Order { on_killed, is_timed, grace: self.grace, deadline, command: self.command.to_vec() }
    }

    /// The command's environment.
    fn variables(&self, guard: &Guard) -> Vec<(String, String)> {
        let deadline = now() + guard.remaining();
        let deadline = deadline.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis());
        let url = self.url.iter().map(|url| (store::VARIABLE, url.clone()));
        let of_lock = [
            ("TENURE_NAME", guard.name().as_str().to_owned()),
            ("TENURE_OWNER", guard.owner().to_string()),
            ("TENURE_DEADLINE", deadline.to_string()),
        ];
        let fence = fence(guard.fence()).map(|fence| ("TENURE_FENCE", fence.to_string()));
        of_lock
            .into_iter()
            .chain(fence)
            .chain(url)
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// The end, after the lock was released. If the lock was not held until then, the command's status is not enough: it
    /// may have run without the lock.
    pub(crate) async fn conclude(
        &self,
        outcome: Outcome,
        (name, owner): &(LockName, Owner),
        release: impl Future<Output = Result<Released, Error>>,
    ) -> End {
        if matches!(outcome, Outcome::Lost | Outcome::EndedWithout(_)) {
            return outcome.into();
        }
        match tokio::time::timeout(RELEASE_TIME, release).await {
            Ok(Ok(Released::Now)) => {}
            Ok(Ok(Released::AlreadyLost)) if self.on_lost == OnLost::Ignore => {}
            Ok(Ok(Released::AlreadyLost)) => {
                let by = loss::forced(self.tenure, name, *owner).await;
                let by = by.map_or_else(String::new, |by| format!(": {by}"));
                say(format_args!("`{name}` was lost before the command ended{by}"));
                if self.on_lost == OnLost::Kill {
                    return End::Lost;
                }
            }
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
        let hint = match exit {
            Exit::NotFound => self.shell_hint().unwrap_or_default(),
            _ => String::new(),
        };
        exit.because(&format!("could not run `{program}`: {error}{hint}"))
    }

    /// For a shell command line that was given as one word.
    fn shell_hint(&self) -> Option<String> {
        let [line] = self.command else { return None };
        let line = line.to_str().filter(|line| line.contains([' ', ';', '|', '&', '$', '>']))?;
        let quoted = line.replace('\'', r"'\''");
        Some(format!("; no shell reads it: for a shell command line use -c '{quoted}'"))
    }
}

#[expect(clippy::disallowed_methods, reason = "the command gets it as calendar time")]
fn now() -> SystemTime {
    SystemTime::now()
}
