//! The fencing token: a number that increases with every grant (I4).

use std::fmt;
use std::time::Duration;

use super::moment::Moment;

/// For how long, at least, a server keeps the last fence of a lock by default: longer than the clocks of
/// servers that take over from each other differ.
pub(crate) const RETENTION: Duration = Duration::from_secs(30);

/// A fencing token. Every grant of a lock has a larger one than all earlier grants, so a database can
/// refuse a writer that was overtaken.
///
/// It is the store's calendar time in microseconds, or one more than the last one, whichever is larger. So
/// it also increases across restarts, failover and loss of the store's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// No fence: of a grant of a store that has [none](crate::engine::Features). It is smaller than every fence; the
    /// checks of `tenure-fenced`, the scripts and the gate of [`fenced`](crate::fenced) refuse it.
    pub const NONE: Self = Self(0);

    /// The largest fence: below 2^53, so that JSON, Lua and every language represent it exactly.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// Creates a fence from a stored number.
    pub const fn from_value(value: u64) -> Self {
        Self(value)
    }

    /// Returns the number to store beside the data.
    pub const fn value(self) -> u64 {
        self.0
    }

    /// The fence of a later local holder, out of a reserved range; none, if the first has none.
    pub(crate) const fn later_by(self, turns: u8) -> Self {
        if self.0 == 0 { self } else { Self(self.0 + turns as u64) }
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

/// Issues fences, each larger than all before it.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    last: u64,
}

impl Fences {
    /// Continues after the last fence that was issued.
    #[cfg(any(all(feature = "local", target_os = "linux"), test))]
    pub(crate) const fn after(last: u64) -> Self {
        Self { last }
    }

    /// The last fence that was issued.
    pub(crate) const fn last(&self) -> Fence {
        Fence(self.last)
    }

    /// The next fence.
    pub(crate) fn next(&mut self, wall: Moment) -> Fence {
        self.reserve(1, None, wall).0
    }

    /// Reserves several fences: returns the first, no smaller than the proposed one if there is one, and how many
    /// there are: at least one, and at most `wanted`. Fences ahead of the calendar could not be overtaken after a
    /// loss of all data, so the further ones are never ahead by more than `wanted` microseconds (I4).
    pub(crate) fn reserve(
        &mut self,
        wanted: u32,
        proposed: Option<Fence>,
        wall: Moment,
    ) -> (Fence, u32) {
        let calendar = calendar(wall).0;
        let first = proposed.map_or(calendar, Fence::value).max(self.last.saturating_add(1));
        let room = (calendar + u64::from(wanted) + 1).saturating_sub(first);
        let count = u32::try_from(room).map_or(wanted, |room| wanted.min(room)).max(1);
        self.raise(Fence(first.saturating_add(u64::from(count) - 1)));
        (Fence(first), count)
    }

    /// Continues after this fence, if it is larger than the last one.
    pub(crate) fn raise(&mut self, fence: Fence) {
        self.last = self.last.max(fence.0);
    }
}

/// The calendar as a fence. Beyond the year 2255 it is wrong; counting up from 0 is still correct then.
pub(crate) fn calendar(wall: Moment) -> Fence {
    Fence(if wall.as_micros() < Fence::MAX.0 { wall.as_micros() } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I4, for a clock that was set back and one with absurd values.
    #[test]
    fn fences_grow_whatever_the_calendar_does() {
        let mut fences = Fences::default();
        let mut last = Fence::from_value(0);
        for wall in [1_000_000, 2_000_000, 5, u64::MAX, 2_000_000, 2_000_001] {
            let (fence, count) = fences.reserve(3, None, Moment::from_micros(wall));
            assert!(fence > last, "{fence} after {last}");
            last = Fence::from_value(fence.value() + u64::from(count) - 1);
        }
        assert!(last < Fence::MAX);
    }

    #[test]
    fn a_new_store_continues_above_the_old_one() {
        let before = Fences::default().next(Moment::from_micros(1_000));
        let after = Fences::default().next(Moment::from_micros(1_001));
        assert!(after > before);
    }

    /// I4: however fast locks are handed over, a loss of all data must be survived.
    #[test]
    fn fences_do_not_run_ahead_of_the_calendar() {
        let mut fences = Fences::default();
        let mut all = 0;
        for wall in (1_000_000..1_010_000).step_by(10) {
            let (first, count) = fences.reserve(65, None, Moment::from_micros(wall));
            let last = first.value() + u64::from(count) - 1;
            assert!((1..=65).contains(&count) && last <= wall + 65, "{last} at {wall}");
            all += count;
        }
        assert!(all >= 10_000, "one per µs is available: {all}");
    }
}
