//! How long a store that cannot be reached is tried.

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;

use tenure::{Error, StoreError};
use tokio::time::{Instant, timeout};

use crate::args::time::pause;
use crate::exit::Exit;
use crate::view::format::in_sentence;
use crate::view::output::{is_seen, say};

/// How long to try if the caller has not said it.
const USUAL: Duration = Duration::from_secs(5);

/// How soon to try again: at once while a server restarts, seldom when it is gone.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The time that a command has to reach the store, and then to get its lock.
pub(crate) struct Patience {
    time: Duration,
    started: Cell<Instant>,
    /// Whether it is said when a store is tried again.
    is_verbose: bool,
}

impl Patience {
    /// From now on, for this time, or for the usual one.
    pub(crate) fn new(time: Option<Duration>, is_verbose: bool) -> Self {
        let is_verbose = is_verbose || is_seen();
        Self { time: time.unwrap_or(USUAL), started: Cell::new(Instant::now()), is_verbose }
    }

    /// Counts from now on.
    pub(crate) fn restart(&self) {
        self.started.set(Instant::now());
    }

    /// The whole of it.
    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    pub(crate) fn left(&self) -> Duration {
        self.time.saturating_sub(self.started.get().elapsed())
    }

    /// Tries until it succeeds, the time is over, or the trouble is such that it stays. The first
    /// attempt has the time that it needs.
    pub(crate) async fn endure<T>(
        &self,
        mut attempt: impl AsyncFnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut met = match attempt().await {
            Err(error) if passes(&error) => error,
            ended => return ended,
        };
        let mut delay = FIRST_PAUSE;
        if self.is_verbose && !self.left().is_zero() {
            let limit = match self.time {
                Duration::MAX => String::new(),
                time => format!(" for up to {}", in_sentence(time)),
            };
            say(format_args!("{met}; trying again{limit}"));
        }
        while !self.left().is_zero() {
            pause(delay.min(self.left())).await;
            delay = LONGEST_PAUSE.min(delay * 2);
            // At the end of the time there is one more attempt, for a moment.
            match timeout(self.left().max(FIRST_PAUSE), attempt()).await {
                Ok(Err(error)) if passes(&error) => met = error,
                Ok(ended) => return ended,
                Err(_) => {}
            }
        }
        Err(met)
    }

    /// Says what went wrong, and for how long it was tried.
    pub(crate) fn told(&self, error: &Error) -> ExitCode {
        if !passes(error) || self.time.is_zero() {
            return Exit::told(error);
        }
        Exit::of(error).because(&format!("{error}; tried for {}", in_sentence(self.time)))
    }
}

/// Whether it may be otherwise in a moment.
fn passes(error: &Error) -> bool {
    trouble(error).is_some_and(|trouble| !trouble.is_lasting())
}

/// What is wrong between us and the store.
pub(crate) fn trouble(error: &Error) -> Option<&StoreError> {
    match error {
        Error::Connect { trouble }
        | Error::List { trouble }
        | Error::Unreachable { trouble, .. }
        | Error::Unknown { trouble, .. } => Some(trouble),
        _ => None,
    }
}
