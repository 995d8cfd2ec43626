//! How long an unreachable store is retried.

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;

use tenure::{Error, StoreError};
use tokio::time::{Instant, timeout};

use crate::args::time::pause;
use crate::exit::Exit;
use crate::view::format::in_sentence;
use crate::view::output::{is_terminal, say};

/// The default without `-w`.
const USUAL: Duration = Duration::from_secs(5);

/// The backoff: short while a server restarts, long when it is down.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The time limit of a command for reaching the store and acquiring its lock.
pub(crate) struct Patience {
    time: Duration,
    started: Cell<Instant>,
    /// Whether a retry is reported.
    is_verbose: bool,
}

impl Patience {
    /// From now on, for this time, or for the default.
    pub(crate) fn new(time: Option<Duration>, is_verbose: bool) -> Self {
        let is_verbose = is_verbose || is_terminal();
        Self { time: time.unwrap_or(USUAL), started: Cell::new(Instant::now()), is_verbose }
    }

    /// Counts from now on.
    pub(crate) fn restart(&self) {
        self.started.set(Instant::now());
    }

    /// The whole time.
    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    pub(crate) fn left(&self) -> Duration {
        self.time.saturating_sub(self.started.get().elapsed())
    }

    /// Retries until it succeeds, the time is over, or the error is a lasting one. The first attempt has no time limit.
    pub(crate) async fn retry<T>(
        &self,
        mut attempt: impl AsyncFnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut met = match attempt().await {
            Err(error) if is_transient(&error) => error,
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
            // One last short attempt at the end of the time.
            match timeout(self.left().max(FIRST_PAUSE), attempt()).await {
                Ok(Err(error)) if is_transient(&error) => met = error,
                Ok(ended) => return ended,
                Err(_) => {}
            }
        }
        Err(met)
    }

    /// Reports an error, and for how long it was retried.
    pub(crate) fn report(&self, error: &Error) -> ExitCode {
        if !is_transient(error) || self.time.is_zero() {
            return Exit::report(error);
        }
        Exit::of(error).because(&format!("{error}; tried for {}", in_sentence(self.time)))
    }
}

/// Whether a retry may succeed.
fn is_transient(error: &Error) -> bool {
    store_error(error).is_some_and(|trouble| !trouble.is_lasting())
}

/// The store's error within an error of the library.
pub(crate) fn store_error(error: &Error) -> Option<&StoreError> {
    match error {
        Error::Connect { error }
        | Error::List { error }
        | Error::Unreachable { error, .. }
        | Error::Unknown { error, .. } => Some(error),
        _ => None,
    }
}
