//! Points in time. The core gets them as parameters, and never reads a clock.

use std::ops::Add;
use std::time::Duration;

/// A point on some clock, in whole microseconds since that clock's own start.
///
/// Moments of different clocks (the client's and the store's) must not be compared; only the time between
/// two moments of one clock is meaningful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);

    /// A moment that is never reached.
    pub const NEVER: Self = Self(u64::MAX);

    /// Creates the moment `micros` microseconds after the start of the clock.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since the start of the clock.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to `self`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Returns the moment `duration` before this one, but not before the start of the clock.
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(micros(duration)))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The time of an operation, by both clocks of a store.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// The store's steady clock, which leases are measured on.
    pub clock: Moment,
    /// The calendar, from which fences and "held since" are taken. It may jump; leases never depend on it.
    pub wall: Moment,
}
