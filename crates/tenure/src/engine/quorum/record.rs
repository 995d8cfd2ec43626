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
    /// The entries that the nodes have. One of them stays while entries are counted here.
    attempts: Vec<Arc<Attempt>>,
    /// Further entries, counted here.
    counted: Vec<Entry>,
    /// The entry of an attempt that was released, and stands for those that are counted.
    released: Option<Entry>,
    /// How many it has now: a re-entry may ask for fewer, and a writer that became a reader has given back the others.
    permits: u32,
    /// Nodes that have taken it away, one bit each.
    lost: u8,
    /// No guard relies on it after this.
    until: Moment,
}

impl Record {
    pub(super) fn new() -> Self {
        Self {
            fence: Fence::from_value(0),
            attempts: Vec::new(),
            counted: Vec::new(),
            released: None,
            permits: 0,
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
        self.remove(attempt.request.entry);
        let before = if self.attempts.is_empty() { 0 } else { self.permits };
        self.permits = before.max(attempt.request.shape.permits());
        self.attempts.push(attempt.clone());
        self.until = self.until.max(now + grant.lease);
    }

    /// Forgets an entry that is granted anew.
    pub(super) fn remove(&mut self, entry: Entry) {
        self.attempts.retain(|it| it.request.entry != entry);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    pub(super) fn attempts(&self) -> impl Iterator<Item = &Arc<Attempt>> {
        self.attempts.iter()
    }

    pub(super) fn permits(&self) -> u32 {
        self.permits
    }

    pub(super) fn counts(&self, entry: Entry) -> bool {
        self.counted.contains(&entry)
    }

    pub(super) fn has_counted(&self) -> bool {
        !self.counted.is_empty()
    }

    pub(super) fn has_one_entry(&self) -> bool {
        self.counted.is_empty() && self.attempts.len() == 1
    }

    pub(super) fn knows(&self, entry: Entry) -> bool {
        self.counts(entry) || self.attempts.iter().any(|it| it.request.entry == entry)
    }

    /// Whether an entry has not ended: one that was released may stand for others.
    pub(super) fn is_in(&self, entry: Entry) -> bool {
        self.knows(entry) && self.released != Some(entry)
    }

    /// Counts a further entry. Returns the fence; none if the nodes must be asked.
    pub(super) fn enter(&mut self, request: &AcquireRequest) -> Option<Fence> {
        let (shape, entry) = (request.shape, request.entry);
        let first = self.attempts.first()?.request.shape;
        let is_same = first.kind() == shape.kind() && first.kind() != Kind::Barrier;
        let is_at_nodes = self.attempts.iter().any(|it| it.request.entry == entry);
        if !is_same || is_at_nodes || shape.permits() > self.permits {
            return None;
        }
        if !self.counts(entry) {
            self.counted.push(entry);
        }
        Some(self.fence)
    }

    /// An entry ends.
    pub(super) fn leave(&mut self, entry: Entry) -> Leaving {
        if let Some(at) = self.counted.iter().position(|it| *it == entry) {
            self.counted.swap_remove(at);
            let alone = self.released.filter(|_| self.counted.is_empty());
            return alone.and_then(|entry| self.take(entry)).unwrap_or_else(|| self.remaining());
        }
        // It stands for those that are counted, however often it ends: the nodes have no other one.
        let is_last = matches!(&self.attempts[..], [last] if last.request.entry == entry);
        if is_last && !self.counted.is_empty() {
            self.released = Some(entry);
            return self.remaining();
        }
        self.take(entry).unwrap_or(Leaving::Unknown)
    }

    fn take(&mut self, entry: Entry) -> Option<Leaving> {
        let at = self.attempts.iter().position(|it| it.request.entry == entry)?;
        self.released.take_if(|released| *released == entry);
        Some(Leaving::AtNodes(self.attempts.swap_remove(at)))
    }

    /// Gives back the permits but so many, if there is one entry.
    pub(super) fn keep(&mut self, permits: u32) -> Leaving {
        if self.entries() > 1 {
            return self.remaining();
        }
        self.permits = self.permits.min(permits);
        self.attempts.last().cloned().map_or(Leaving::Unknown, Leaving::AtNodes)
    }

    /// One request for each entry that a node is not known to have. None for a party of a barrier: it would arrive there
    /// once more.
    pub(super) fn repairs(
        &self,
        node: usize,
        now: Moment,
        may_end: impl Fn(Entry) -> bool,
    ) -> Vec<(Arc<Attempt>, AcquireRequest)> {
        let missing = self.attempts.iter().filter(|attempt| !attempt.is_held_now(node, now));
        let repair = |attempt: &Arc<Attempt>| {
            let shape = attempt.request.shape;
            if shape.kind() == Kind::Barrier {
                return None;
            }
            let shape = Shape::new(shape.kind(), shape.limit(), self.permits).ok()?;
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
        self.attempts.iter().for_each(|it| lock(&it.state).candidate.give_back(node));
    }

    /// Whether a node has taken it away, and has not got it back since.
    pub(super) fn is_lost_at(&self, node: usize) -> bool {
        self.lost & (1 << node) != 0
    }

    /// Whether too few of so many nodes are left.
    pub(super) fn is_lost(&self, nodes: usize) -> bool {
        let needed = self.attempts.last().map_or(0, |it| lock(&it.state).candidate.needed());
        nodes - (self.lost.count_ones() as usize) < needed
    }

    fn remaining(&self) -> Leaving {
        Leaving::Counted { remaining: self.entries() }
    }

    pub(super) fn entries(&self) -> u32 {
        let at_nodes = self.attempts.len() - usize::from(self.released.is_some());
        (at_nodes + self.counted.len()) as u32
    }
}
