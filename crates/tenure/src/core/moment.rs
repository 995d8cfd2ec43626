//! Points in time as the core sees them: told, never asked for.

use std::ops::Add;
use std::time::Duration;

/// A point on some clock, in whole microseconds since that clock's own start.
///
/// Moments of different clocks (yours and the store's) must not be compared; only the time
/// between two moments of one clock means anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);

    /// A moment that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `micros` microseconds after the start of the clock.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the start of the clock.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`, zero if `earlier` is the later one.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// `duration` before this moment, but not before the start of the clock.
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

/// What a store is told about the time with every operation.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// The store's steady clock, which leases are measured on.
    pub clock: Moment,
    /// The calendar, which fences and "held since" are taken from. It may jump; leases never
    /// depend on it.
    pub wall: Moment,
}
