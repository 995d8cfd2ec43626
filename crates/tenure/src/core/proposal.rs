//! When a node of a quorum accepts a fence that a client proposes.
//!
//! All nodes that grant a lock must agree on its fence, so the client proposes it. A node has granted no larger one
//! when it accepts a proposal, and any two majorities share a node: so fences grow from one majority to the next (I4).

use std::time::Duration;

use super::fence::{self, Fence, RETENTION};
use super::moment::Moment;
use super::shape::Kind;
use crate::engine::{AcquireRequest, Acquired, Proposal};

/// How far a proposal may be ahead of the node's calendar: more than the clocks of machines differ, and little enough
/// that one client whose clock is wrong does not raise the fences of all others for long.
const MAX_AHEAD: Duration = Duration::from_secs(60);

/// How far a proposal may be behind. A node may have forgotten a fence that is older than the retention, so no smaller
/// one may be granted.
const MAX_BEHIND: Duration = RETENTION;

/// The fence that is proposed, if the kind of lock has fences.
pub(crate) fn of(request: &AcquireRequest) -> Option<Proposal> {
    request.proposal.filter(|_| !matches!(request.shape.kind(), Kind::Latch | Kind::Barrier))
}

/// The same, if the request is a repair.
pub(crate) fn repair_of(request: &AcquireRequest) -> Option<Proposal> {
    of(request).filter(|proposal| proposal.is_repair)
}

/// Whether a request may set the limit of a semaphore: the latest one does, and neither a repeated one nor a repair is new.
pub(crate) fn sets_limit(request: &AcquireRequest) -> bool {
    of(request).is_none_or(|proposal| !proposal.is_repair && !proposal.is_repeated)
}

/// Whether a waiter asks once more. What other entries of its owner have at this node is not extended: those that no client knows any more
/// would stay for as long as waiters of their owner give the node back and ask for it by turns (I7). An entry whose number is 0 is the only one of its
/// owner.
pub(crate) fn asks_again(request: &AcquireRequest) -> bool {
    let may_be_one_of_several = request.queue.is_some() && request.entry.number != 0;
    may_be_one_of_several && of(request).is_some_and(|it| it.is_repeated && !it.is_repair)
}

/// The refusal of a proposal that is too far ahead.
pub(crate) fn refuse_ahead(request: &AcquireRequest, wall: Moment) -> Option<Acquired> {
    let fence = of(request)?.fence;
    let most = (wall + MAX_AHEAD).as_micros().min(Fence::MAX.value());
    (fence.value() > most).then_some(Acquired::Ahead { clock: wall })
}

/// The refusal of a proposal that is not larger than the last fence, or that may not be larger than one that the node
/// has forgotten. In the latter case the answer is the calendar: one above the bound would be below it soon.
pub(crate) fn refuse_outdated(
    request: &AcquireRequest,
    last: Fence,
    wall: Moment,
) -> Option<Acquired> {
    let Proposal { fence, is_repair, .. } = of(request)?;
    if is_repair {
        return (fence < last).then_some(Acquired::Outdated { last });
    }
    let calendar = fence::calendar(wall);
    let is_old =
        fence.value() <= Moment::from_micros(calendar.value()).before(MAX_BEHIND).as_micros();
    let last = if is_old { last.max(calendar) } else { last };
    (fence <= last).then_some(Acquired::Outdated { last })
}
