//! Counts of latches that a majority of the nodes has, and others do not.
//!
//! A latch opens at a node that has all counts. Two counts that reached different majorities are together at one node of
//! three, and the latch would stay closed for a waiter, although each of them was confirmed. Two things open it (I6, I7):
//! - a client delivers its counts to the nodes that have not answered, for as long as the count lasts and the client
//!   lives, so that the latch opens at these nodes;
//! - a client that waits adds up, whenever it has asked, the counts that a majority of the nodes shows: those who counted
//!   may have ended. A count that a minority shows was not confirmed, and is not added.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use super::Quorum;
use super::arrival::on_arrival;
use super::attempt::{Attempt, Phase};
use super::effect::Effect;
use super::node::Node;
use crate::clock;
use crate::core::fence::Fence;
use crate::core::lease::Lease;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::core::quorum::{Claim, Hold};
use crate::core::shape::Kind;
use crate::engine::{AcquireRequest, Acquired};
use crate::info::LockInfo;
use crate::owner::Owner;
use crate::sync::lock;

/// How many counts are remembered. Beyond that, a count stays where it is.
const MOST: usize = 10_000;

/// How many of them are sent to one node in one go.
const SENT: usize = 128;

/// The counts of this client. They are kept for as long as they last: a node that loses its data gets them again.
#[derive(Default)]
pub(super) struct Counts {
    owed: Mutex<Vec<Arc<Owed>>>,
}

/// A count that was confirmed.
struct Owed {
    attempt: Arc<Attempt>,
    /// By then it has ended everywhere.
    until: Moment,
    /// The nodes to which it is being delivered, one bit each.
    in_flight: AtomicU8,
}

impl Quorum {
    /// Remembers a count that a majority has just confirmed.
    pub(super) fn owe(&self, attempt: &Arc<Attempt>) {
        if !attempt.is_count() {
            return;
        }
        let until = clock::now() + attempt.request.lease.duration();
        let attempt = attempt.clone();
        let mut owed = lock(&self.counts.owed);
        if owed.len() < MOST {
            owed.push(Arc::new(Owed { attempt, until, in_flight: AtomicU8::new(0) }));
        }
    }
}

impl Quorum {
    /// Lets a waiter of a latch pass that is closed at too many nodes, if a majority shows enough counts.
    pub(super) fn add_up_counts(self: &Arc<Self>, attempt: &Arc<Attempt>) {
        let AcquireRequest { name, shape, .. } = &attempt.request;
        // A node shows a part of so many.
        if shape.kind() != Kind::Latch || shape.limit() as usize > LockInfo::HOLDERS_SHOWN {
            return;
        }
        let (shown, limit) = (self.inspect(name.clone()), u64::from(shape.limit()));
        let (quorum, attempt) = (self.clone(), attempt.clone());
        self.io.spawn(async move {
            let Ok(LockInfo { kind: Some(Kind::Latch), holders, .. }) = shown.await else { return };
            if holders.iter().map(|it| u64::from(it.permits)).sum::<u64>() >= limit {
                quorum.let_pass(&attempt);
            }
        });
    }

    fn let_pass(self: &Arc<Self>, attempt: &Arc<Attempt>) {
        let effect = attempt.pass();
        if let Effect::Granted { .. } = effect {
            self.perform(attempt, effect);
            (0..self.nodes.len()).for_each(|node| self.end_at(node, attempt));
        }
    }
}

impl Attempt {
    /// The latch is open, whatever single nodes say. One that is being asked for again is looked at after that.
    fn pass(&self) -> Effect {
        let mut state = lock(&self.state);
        if state.phase != Phase::Waiting {
            return Effect::None;
        }
        let (at, lease) = (clock::now(), self.request.lease.duration());
        // Nothing is held, so there is no fence.
        self.granted(
            &mut state,
            Hold { fence: Fence::from_value(0), fences: 1, stamp: at, at, lease },
        )
    }
}

impl Counts {
    /// Whether all nodes have all of them.
    #[cfg(test)]
    pub(super) fn are_delivered(&self, nodes: usize) -> bool {
        lock(&self.owed).iter().all(|it| (0..nodes).all(|node| !it.is_missing_at(node)))
    }

    /// A node has lost its data, and votes again: it has none of them.
    pub(super) fn lose_at(&self, node: usize) {
        for it in lock(&self.owed).iter() {
            lock(&it.attempt.state).candidate.give_back(node);
        }
    }

    /// The counts of this owner were taken away: they must not come back.
    pub(super) fn forget(&self, name: &LockName, owner: Owner) {
        let is_meant =
            |it: &Owed| it.attempt.request.name == *name && it.attempt.request.entry.owner == owner;
        lock(&self.owed).retain(|it| !is_meant(it));
    }

    /// Sends the counts to the nodes that are not known to have them.
    pub(super) fn deliver(&self, nodes: &[Arc<Node>]) {
        let now = clock::now();
        // Not locked while it is sent: a count may open the latch, and wake a waiter of this client.
        let owed = self.unfinished(nodes.len(), now);
        for (node, to) in nodes.iter().enumerate() {
            let due = owed.iter().filter(|it| it.is_missing_at(node) && it.start(node));
            due.take(SENT).for_each(|it| it.send(node, to, now));
        }
    }

    /// Forgets the counts that have ended. Returns those that some node does not have.
    fn unfinished(&self, nodes: usize, now: Moment) -> Vec<Arc<Owed>> {
        let mut owed = lock(&self.owed);
        owed.retain(|it| it.until > now);
        let is_unfinished = |it: &&Arc<Owed>| (0..nodes).any(|node| it.is_missing_at(node));
        owed.iter().filter(is_unfinished).cloned().collect()
    }
}

impl Owed {
    fn is_missing_at(&self, node: usize) -> bool {
        !lock(&self.attempt.state).candidate.is_held_at(node)
    }

    /// False if it is being delivered already.
    fn start(&self, node: usize) -> bool {
        self.in_flight.fetch_or(1 << node, Ordering::AcqRel) & (1 << node) == 0
    }

    /// It may be sent twice (I5). It lasts no longer there than at the nodes that had it first.
    fn send(self: &Arc<Self>, node: usize, to: &Node, now: Moment) {
        let Ok(lease) = Lease::new(self.until.since(now)) else { return };
        let request = AcquireRequest { lease, ..self.attempt.request.clone() };
        let owed = self.clone();
        on_arrival(to.engine().acquire(request), move |result| {
            if let Ok(Acquired::Granted(grant)) = result {
                let (fence, fences, lease) = (grant.fence, grant.fences, grant.lease);
                let hold = Hold { fence, fences, stamp: grant.at, at: now, lease };
                lock(&owed.attempt.state).candidate.answer(node, Claim::Held(hold));
            }
            owed.in_flight.fetch_and(!(1 << node), Ordering::AcqRel);
        });
    }
}
