//! Waiting for the turn, as whoever waits sees it: for how long, and whether others get on.

use std::time::Duration;

use crate::core::moment::Moment;

/// How long to sleep before looking again: at first, and later.
const FIRST_NAP: Duration = Duration::from_micros(100);
const LONGEST_NAP: Duration = Duration::from_millis(2);

/// The same for a process that opens the store. Hundreds may begin at once, and by looking often they
/// would keep the one that has the turn from running.
const LONGEST_NAP_OPENING: Duration = Duration::from_millis(40);

/// A look that comes later than this after the one before counts as if it had not: whoever was
/// stopped, or not let run, has not seen what others did meanwhile.
const UNSEEN: Duration = Duration::from_millis(10);

pub(crate) struct Backoff {
    pub(crate) looked: Moment,
    /// The last change that was seen.
    pub(crate) change: usize,
    begun: Moment,
    changed: Moment,
    nap: Duration,
    longest_nap: Duration,
}

impl Backoff {
    pub(crate) const fn begin(now: Moment, change: usize) -> Self {
        let (nap, longest_nap) = (FIRST_NAP, LONGEST_NAP);
        Self { looked: now, change, begun: now, changed: now, nap, longest_nap }
    }

    /// The same for a process that opens the store.
    pub(crate) const fn opening(self) -> Self {
        Self { longest_nap: LONGEST_NAP_OPENING, ..self }
    }

    pub(crate) fn look(&mut self, now: Moment, change: usize) {
        let unseen = now.since(self.looked).saturating_sub(UNSEEN.max(self.nap));
        self.looked = now;
        self.begun = self.begun + unseen;
        self.changed = self.changed + unseen;
        if self.change != change {
            (self.change, self.changed) = (change, now);
        }
    }

    /// For how long it was seen that nobody has changed anything.
    pub(crate) const fn still(&self) -> Duration {
        self.looked.since(self.changed)
    }

    pub(crate) const fn waited(&self) -> Duration {
        self.looked.since(self.begun)
    }

    /// Longer from time to time, so that a crowd does not keep itself from working by looking.
    #[expect(clippy::disallowed_methods, reason = "for about as long as some operations take")]
    pub(crate) fn nap(&mut self) {
        std::thread::sleep(self.nap);
        self.nap = (self.nap * 2).min(self.longest_nap);
    }
}
