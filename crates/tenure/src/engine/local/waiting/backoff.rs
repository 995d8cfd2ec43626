//! The delay between two polls of the store's mutex, and what a waiting thread knows: for how long it has waited, and
//! whether other operations make progress.

use std::time::Duration;

use crate::core::moment::Moment;

/// The delay before the next poll: the first, and the longest.
const FIRST_DELAY: Duration = Duration::from_micros(100);
const MAX_DELAY: Duration = Duration::from_millis(2);

/// The longest delay of a process that opens the store. Hundreds may start at once, and with frequent polls they
/// would take the processor from the holder of the mutex.
const MAX_DELAY_OPENING: Duration = Duration::from_millis(40);

/// A longer gap between two polls does not count: a thread that was stopped or not scheduled has not observed what
/// other operations did meanwhile.
const MAX_GAP: Duration = Duration::from_millis(10);

pub(crate) struct Backoff {
    pub(crate) polled_at: Moment,
    /// The last change that was observed.
    pub(crate) change: usize,
    begun: Moment,
    changed_at: Moment,
    delay: Duration,
    max_delay: Duration,
}

impl Backoff {
    pub(crate) const fn new(now: Moment, change: usize) -> Self {
        let (delay, max_delay) = (FIRST_DELAY, MAX_DELAY);
        Self { polled_at: now, change, begun: now, changed_at: now, delay, max_delay }
    }

    /// The same for a process that opens the store.
    pub(crate) const fn opening(self) -> Self {
        Self { max_delay: MAX_DELAY_OPENING, ..self }
    }

    pub(crate) fn poll(&mut self, now: Moment, change: usize) {
        let gap = now.since(self.polled_at).saturating_sub(MAX_GAP.max(self.delay));
        self.polled_at = now;
        self.begun = self.begun + gap;
        self.changed_at = self.changed_at + gap;
        if self.change != change {
            (self.change, self.changed_at) = (change, now);
        }
    }

    /// For how long no change was observed.
    pub(crate) const fn stalled(&self) -> Duration {
        self.polled_at.since(self.changed_at)
    }

    pub(crate) const fn waited(&self) -> Duration {
        self.polled_at.since(self.begun)
    }

    /// Doubles the delay each time, so that many waiters do not starve the holder by polling.
    #[expect(clippy::disallowed_methods, reason = "for about as long as some operations take")]
    pub(crate) fn sleep(&mut self) {
        std::thread::sleep(self.delay);
        self.delay = (self.delay * 2).min(self.max_delay);
    }
}
