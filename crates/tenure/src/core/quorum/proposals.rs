//! The fences that a client proposes.

use crate::core::fence::Fence;
use crate::core::moment::Moment;

/// How far a fence may be ahead of this client's calendar to be taken for the difference of two calendars. One that is
/// further ahead concerns its own lock only.
const SKEW: u64 = 1_000_000;

/// Proposes fences: larger than all it has seen, and no smaller than the calendar, so that nodes that have forgotten
/// their last fence get a larger one all the same (I4).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Proposals {
    /// The largest fence near the calendar that was seen: of a client whose calendar is ahead of this one.
    seen: u64,
}

impl Proposals {
    /// The next proposal, above `last` if a node has reported that.
    pub(crate) fn next(&self, last: Option<Fence>, wall: Moment) -> Fence {
        let seen = last.map_or(0, Fence::value).max(self.seen);
        Fence::from_value((seen + 1).max(calendar(wall)).min(Fence::MAX.value()))
    }

    /// Notes a fence that a node has given or reported, so that the next proposal is not outdated.
    pub(crate) fn note(&mut self, fence: Fence, wall: Moment) {
        if fence.value() <= calendar(wall).saturating_add(SKEW) {
            self.seen = self.seen.max(fence.value());
        }
    }
}

/// The calendar, unless it is beyond what a fence can be.
fn calendar(wall: Moment) -> u64 {
    if wall.as_micros() < Fence::MAX.value() { wall.as_micros() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Moment {
        Moment::from_micros(micros)
    }

    #[test]
    fn a_proposal_is_above_what_was_seen_and_not_below_the_calendar() {
        let mut proposals = Proposals::default();
        assert_eq!(proposals.next(None, at(1_000)).value(), 1_000);
        assert_eq!(proposals.next(Some(Fence::from_value(5_000)), at(1_000)).value(), 5_001);
        proposals.note(Fence::from_value(3_000), at(1_000));
        assert_eq!(proposals.next(None, at(1_000)).value(), 3_001);
        assert_eq!(proposals.next(None, at(9_000)).value(), 9_000);
    }

    /// A fence far ahead on one lock must not raise the fences of all others.
    #[test]
    fn a_fence_far_ahead_is_not_carried_to_other_locks() {
        let mut proposals = Proposals::default();
        proposals.note(Fence::from_value(50_000_000), at(1_000));
        assert_eq!(proposals.next(None, at(1_000)).value(), 1_000);
    }

    #[test]
    fn an_absurd_calendar_is_ignored() {
        let proposals = Proposals::default();
        assert_eq!(proposals.next(Some(Fence::from_value(7)), at(u64::MAX)).value(), 8);
        assert_eq!(proposals.next(Some(Fence::MAX), at(5)), Fence::MAX);
    }
}
