//! How long an acquire waits.

use std::time::Duration;

use crate::core::backoff::Backoff;

/// How long, or how often, an acquire tries.
///
/// By default, a waiter joins the store's queue and is notified when the lock is handed over to it: this is
/// the fastest and the fair way to wait. With [`Wait::attempts`] or [`Wait::retry`] it polls instead, after a
/// delay each time, and joins no queue.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure::{Backoff, Wait};
///
/// let five_seconds = Wait::within(Duration::from_secs(5));
/// let three_times = Wait::attempts(3).retry(Backoff::fixed(Duration::from_millis(50)));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Wait {
    pub(crate) within: Option<Duration>,
    pub(crate) attempts: Option<u32>,
    pub(crate) retry: Option<Backoff>,
}

impl Wait {
    /// Waits until the lock is acquired.
    pub const fn forever() -> Self {
        Self { within: None, attempts: None, retry: None }
    }

    /// Waits for at most this time.
    pub const fn within(time: Duration) -> Self {
        Self { within: Some(time), attempts: None, retry: None }
    }

    /// Makes at most this many attempts, and at least one.
    pub const fn attempts(attempts: u32) -> Self {
        Self { within: None, attempts: Some(attempts), retry: None }
    }

    /// Polls with these delays, instead of joining the queue.
    #[must_use]
    pub fn retry(mut self, backoff: Backoff) -> Self {
        self.retry = Some(backoff);
        self
    }

    /// The same, after some time has passed.
    pub(crate) fn after(&self, elapsed: Duration) -> Self {
        let within = self.within.map(|time| time.saturating_sub(elapsed));
        Self { within, ..self.clone() }
    }

    /// Waits for at most this time, in addition to the other bounds.
    #[must_use]
    pub const fn or_within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }
}
