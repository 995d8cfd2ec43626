//! The checker's rules for a node of a quorum: which proposals are granted, and which refused.

use super::account::Account;
use super::checker::{Verdict, ensure};
use super::*;
use crate::core::fence::Fence;
use crate::engine::{Grant, Proposal};

const SECOND: u64 = 1_000_000;

/// A grant on the spot has the proposed fence, which was not too far from the calendar. That it is larger than the last
/// one is checked for all grants.
pub(super) fn judge_grant(request: &AcquireRequest, grant: &Grant, wall: Moment) -> Verdict {
    let Some(Proposal { fence, is_repair, .. }) = request.proposal else { return Ok(()) };
    ensure(grant.fence == fence && grant.fences == 1, "I4: granted another fence than proposed")?;
    ensure(!is_ahead(fence, wall), "granted a fence that is too far ahead")?;
    ensure(is_repair || !is_behind(fence, wall), "I4: granted a fence that is too far behind")
}

/// Removes the wake-ups of waiters that were served after a grant on the spot that precedes them.
pub(super) fn served_after(
    request: &AcquireRequest,
    outcome: &Acquired,
    is_next: bool,
    wall: Moment,
    effects: &mut Effects,
) -> Effects {
    let (Some(proposal), Acquired::Granted(granted)) = (request.proposal, outcome) else {
        return Effects::new();
    };
    // A proposal that is too far ahead is not granted on the spot: if the fences are equal, its owner had waited without one,
    // and the last fence was as far ahead, because the clock was set back.
    if !(proposal.is_repair || is_next)
        || granted.fence != proposal.fence
        || is_ahead(proposal.fence, wall)
    {
        return Effects::new();
    }
    let is_later = |(_, wakeup): &(ClientId, Wakeup)| match wakeup {
        Wakeup::Granted { entry, grant, .. } => {
            let is_same = entry.owner == request.entry.owner && grant.fence == granted.fence;
            grant.fence > granted.fence || is_same
        }
        // Another entry of its owner, which waited for more permits.
        Wakeup::Sooner { entry, .. } => entry.owner == request.entry.owner,
        _ => false,
    };
    let at = effects.iter().position(is_later).unwrap_or(effects.len());
    effects.split_off(at)
}

impl Account {
    /// Whether the request repairs a hold, and nothing speaks against it: then no waiter does, either.
    pub(super) fn must_repair(&self, request: &AcquireRequest, last: Fence, wall: Moment) -> bool {
        let is_good = |it: Proposal| it.is_repair && it.fence >= last && !is_ahead(it.fence, wall);
        request.proposal.is_some_and(is_good) && self.has_room(request, self.limit_for(request))
    }

    /// Only a request that would have been granted is outdated.
    pub(super) fn judge_outdated(
        &mut self,
        request: &AcquireRequest,
        last: Fence,
        known: Fence,
        wall: Moment,
    ) -> Verdict {
        let Proposal { fence, is_repair, .. } =
            request.proposal.ok_or("outdated, but not proposed")?;
        ensure(self.is_new(request.entry), "outdated, though it holds or waits")?;
        let is_free = self.place(request) == 0 && self.has_room(request, self.limit_for(request));
        ensure(is_free, "outdated, though it was busy")?;
        let expected = match is_repair {
            true => (fence < known).then_some(known),
            false if is_behind(fence, wall) => {
                Some(Fence::from_value(known.value().max(wall.as_micros())))
            }
            false => (fence <= known).then_some(known),
        };
        ensure(expected == Some(last), "outdated, though it was larger, or by a wrong fence")
    }

    pub(super) fn judge_ahead(
        &mut self,
        request: &AcquireRequest,
        clock: Moment,
        wall: Moment,
    ) -> Verdict {
        let Proposal { fence, .. } = request.proposal.ok_or("ahead, but not proposed")?;
        ensure(self.is_new(request.entry), "ahead, though it holds or waits")?;
        ensure(is_ahead(fence, wall) && clock == wall, "ahead, though it was not")
    }
}

fn is_ahead(fence: Fence, wall: Moment) -> bool {
    fence.value() > wall.as_micros() + 60 * SECOND
}

fn is_behind(fence: Fence, wall: Moment) -> bool {
    fence.value() + 30 * SECOND <= wall.as_micros()
}
