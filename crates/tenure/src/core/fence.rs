//! The fencing token: a number that grows with every grant (I4).

use std::fmt;

use super::moment::Moment;

/// A fencing token. Every grant of a lock has a larger one than all grants before it, so the
/// place where the data lives can refuse a writer that was overtaken.
///
/// It is taken from the store's calendar in microseconds, or is one more than the last one,
/// whichever is larger. So it also grows across restarts, failover and loss of the store's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// Fences stay below 2^53, so that every language, JSON and Lua keep them exact.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// A fence read back from where it was stored.
    pub const fn from_value(value: u64) -> Self {
        Self(value)
    }

    /// The number to store beside the data.
    pub const fn value(self) -> u64 {
        self.0
    }

    /// The fence of a later local holder, out of a reserved range.
    pub(crate) const fn later_by(self, turns: u8) -> Self {
        Self(self.0 + turns as u64)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Fence> for u64 {
    fn from(fence: Fence) -> Self {
        fence.0
    }
}

/// Hands out fences, each larger than all before it.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    last: u64,
}

impl Fences {
    /// Goes on after the last fence that was handed out.
    #[cfg(feature = "local")]
    pub(crate) const fn after(last: u64) -> Self {
        Self { last }
    }

    /// The last fence that was handed out.
    #[cfg(feature = "local")]
    pub(crate) const fn last(&self) -> u64 {
        self.last
    }

    /// The first of `count` fences reserved together.
    pub(crate) fn reserve(&mut self, count: u32, wall: Moment) -> Fence {
        // A calendar beyond the year 2255 is broken; counting on is still right then.
        let calendar = if wall.as_micros() < Fence::MAX.0 { wall.as_micros() } else { 0 };
        let first = calendar.max(self.last + 1);
        self.last = first + u64::from(count.max(1)) - 1;
        Fence(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I4, for a clock set back and a clock gone mad.
    #[test]
    fn fences_grow_whatever_the_calendar_does() {
        let mut fences = Fences::default();
        let mut last = Fence::from_value(0);
        for wall in [1_000_000, 2_000_000, 5, u64::MAX, 2_000_000, 2_000_001] {
            let fence = fences.reserve(3, Moment::from_micros(wall));
            assert!(fence > last, "{fence} after {last}");
            last = Fence::from_value(fence.value() + 2);
        }
        assert!(last < Fence::MAX);
    }

    #[test]
    fn a_new_store_continues_above_the_old_one() {
        let before = Fences::default().reserve(1, Moment::from_micros(1_000));
        let after = Fences::default().reserve(1, Moment::from_micros(1_001));
        assert!(after > before);
    }
}
