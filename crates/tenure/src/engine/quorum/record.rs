//! One hold of an owner, with its entries.

use std::sync::Arc;

use super::attempt::Attempt;
use super::holds::Leaving;
use crate::core::fence::Fence;
use crate::core::moment::Moment;
use crate::core::shape::{Kind, Shape};
use crate::engine::{AcquireRequest, Grant, Proposal};
use crate::owner::Entry;
use crate::sync::lock;

/// One hold of an owner.
pub(super) struct Record {
    pub(super) fence: Fence,
    /// The entries that the nodes have. One of them stays while entries are counted here, and has as many permits as each of these.
    parts: Vec<Part>,
    /// Further entries, counted here, and how many permits each has.
    counted: Vec<(Entry, u32)>,
    /// The entry of an attempt that was released, and stands for those that are counted.
    released: Option<Entry>,
    /// Nodes that have taken it away, one bit each.
    lost: u8,
    /// No guard relies on it after this.
    until: Moment,
}

/// An entry that the nodes have.
struct Part {
    attempt: Arc<Attempt>,
    /// How many it has now: a writer that became a reader has given back the others.
    permits: u32,
}

impl Record {
    pub(super) fn new() -> Self {
        Self {
            fence: Fence::from_value(0),
            parts: Vec::new(),
            counted: Vec::new(),
            released: None,
            lost: 0,
            until: Moment::ZERO,
        }
    }

    /// Whether it was lost: a later grant of its owner is another hold.
    pub(super) fn is_over(&self, now: Moment) -> bool {
        now >= self.until
    }

    /// It was lost. True if guards may have relied on it until now.
    pub(super) fn end(&mut self, now: Moment) -> bool {
        let is_relied_on = !self.is_over(now);
        self.until = Moment::ZERO;
        is_relied_on
    }

    pub(super) fn extend(&mut self, until: Moment) {
        // What was lost stays lost.
        if self.until > Moment::ZERO {
            self.until = self.until.max(until);
        }
    }

    /// Notes a grant. The guard counts from when it asked, and so no longer than from now.
    pub(super) fn add(&mut self, attempt: &Arc<Attempt>, grant: &Grant, now: Moment) {
        (self.fence, self.lost) = (grant.fence, 0);
        // One that was asked for once more may have given permits back meanwhile.
        let entry = attempt.request.entry;
        let known = self.parts.iter().find(|it| it.attempt.request.entry == entry);
        let permits = known.map_or(attempt.request.shape.permits(), |part| part.permits);
        self.remove(entry);
        self.parts.push(Part { attempt: attempt.clone(), permits });
        self.until = self.until.max(now + grant.lease);
    }

    /// Forgets an entry that is granted anew.
    pub(super) fn remove(&mut self, entry: Entry) {
        self.parts.retain(|it| it.attempt.request.entry != entry);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(super) fn attempts(&self) -> impl Iterator<Item = &Arc<Attempt>> {
        self.parts.iter().map(|part| &part.attempt)
    }

    /// How many permits the entry of an attempt has now.
    pub(super) fn permits(&self, attempt: &Arc<Attempt>) -> Option<u32> {
        let part = self.parts.iter().find(|it| Arc::ptr_eq(&it.attempt, attempt));
        part.map(|part| part.permits)
    }

    pub(super) fn counts(&self, entry: Entry) -> bool {
        self.counted.iter().any(|(it, _)| *it == entry)
    }

    pub(super) fn has_counted(&self) -> bool {
        !self.counted.is_empty()
    }

    pub(super) fn has_one_entry(&self) -> bool {
        self.counted.is_empty() && self.parts.len() == 1
    }

    pub(super) fn knows(&self, entry: Entry) -> bool {
        self.counts(entry) || self.attempts().any(|it| it.request.entry == entry)
    }

    /// Whether an entry has not ended: one that was released may stand for others.
    pub(super) fn is_in(&self, entry: Entry) -> bool {
        self.knows(entry) && self.released != Some(entry)
    }

    /// Counts a further entry. Returns the fence; none if the nodes must be asked.
    pub(super) fn enter(&mut self, request: &AcquireRequest) -> Option<Fence> {
        let (shape, entry) = (request.shape, request.entry);
        let first = self.attempts().next()?.request.shape;
        let is_same = first.kind() == shape.kind() && first.kind() != Kind::Barrier;
        let is_at_nodes = self.attempts().any(|it| it.request.entry == entry);
        // Any of them may be the one that stands for it in the end.
        let is_covered = self.parts.iter().all(|part| shape.permits() <= part.permits);
        if !is_same || is_at_nodes || !is_covered {
            return None;
        }
        if !self.counts(entry) {
            self.counted.push((entry, shape.permits()));
        }
        Some(self.fence)
    }

    /// An entry ends.
    pub(super) fn leave(&mut self, entry: Entry) -> Leaving {
        if let Some(at) = self.counted.iter().position(|(it, _)| *it == entry) {
            self.counted.swap_remove(at);
            let alone = self.released.filter(|_| self.counted.is_empty());
            return alone.and_then(|entry| self.take(entry)).unwrap_or_else(|| self.remaining());
        }
        // It stands for those that are counted, however often it ends, if the nodes have no other one with enough permits (I1).
        let wanted = self.counted.iter().map(|(_, permits)| *permits).max();
        let others = self.parts.iter().filter(|it| it.attempt.request.entry != entry);
        let is_needed = wanted.is_some_and(|wanted| others.clone().all(|it| it.permits < wanted));
        if is_needed && others.count() < self.parts.len() {
            self.released = Some(entry);
            return self.remaining();
        }
        self.take(entry).unwrap_or(Leaving::Unknown)
    }

    fn take(&mut self, entry: Entry) -> Option<Leaving> {
        let at = self.parts.iter().position(|it| it.attempt.request.entry == entry)?;
        self.released.take_if(|released| *released == entry);
        Some(Leaving::AtNodes(self.parts.swap_remove(at).attempt))
    }

    /// Gives back the permits but so many, if there is one entry.
    pub(super) fn keep(&mut self, permits: u32) -> Leaving {
        if self.entries() > 1 {
            return self.remaining();
        }
        let parts = self.parts.iter_mut().map(|part| &mut part.permits);
        let counted = self.counted.iter_mut().map(|(_, permits)| permits);
        parts.chain(counted).for_each(|it| *it = permits.min(*it));
        let last = self.parts.last().map(|part| part.attempt.clone());
        last.map_or(Leaving::Unknown, Leaving::AtNodes)
    }

    /// One request for each entry that a node is not known to have. None for a party of a barrier: it would arrive there
    /// once more.
    pub(super) fn repairs(
        &self,
        node: usize,
        now: Moment,
        may_end: impl Fn(Entry) -> bool,
    ) -> Vec<(Arc<Attempt>, AcquireRequest)> {
        let missing = self.parts.iter().filter(|part| !part.attempt.is_held_now(node, now));
        let repair = |Part { attempt, permits }: &Part| {
            let shape = attempt.request.shape;
            if shape.kind() == Kind::Barrier {
                return None;
            }
            let shape = Shape::new(shape.kind(), shape.limit(), *permits).ok()?;
            let proposal = Some(Proposal { fence: self.fence, is_repair: true, is_repeated: true });
            let entry = attempt.entry_to_repair(node, &may_end);
            let request =
                AcquireRequest { entry, shape, queue: None, proposal, ..attempt.request.clone() };
            Some((attempt.clone(), request))
        };
        missing.filter_map(repair).collect()
    }

    pub(super) fn regain(&mut self, node: usize) {
        self.lost &= !(1 << node);
    }

    /// A node has taken it away, and so has none of its entries.
    pub(super) fn lose(&mut self, node: usize) {
        self.lost |= 1 << node;
        self.attempts().for_each(|it| lock(&it.state).candidate.give_back(node));
    }

    /// Whether a node has taken it away, and has not got it back since.
    pub(super) fn is_lost_at(&self, node: usize) -> bool {
        self.lost & (1 << node) != 0
    }

    /// Whether too few of so many nodes are left.
    pub(super) fn is_lost(&self, nodes: usize) -> bool {
        let needed = self.attempts().last().map_or(0, |it| lock(&it.state).candidate.needed());
        nodes - (self.lost.count_ones() as usize) < needed
    }

    fn remaining(&self) -> Leaving {
        Leaving::Counted { remaining: self.entries() }
    }

    pub(super) fn entries(&self) -> u32 {
        let at_nodes = self.parts.len() - usize::from(self.released.is_some());
        (at_nodes + self.counted.len()) as u32
    }
}
