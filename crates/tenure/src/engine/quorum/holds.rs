//! What this client holds: which nodes are known to hold it, and what is needed to repair one that lost it.
//!
//! **Re-entries.** A further entry of an owner that holds the lock is counted here, and no node learns of it: a node that had
//! missed it would free the lock with the release of the first one (I1). Two entries of an owner are at the nodes only
//! if they were asked for at the same time, or by different clients. So a node counts for a hold only if it is known to have
//! *every* entry of the owner that this client has at the nodes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::attempt::Attempt;
use crate::core::fence::Fence;
use crate::core::name::LockName;
use crate::core::shape::{Kind, Shape};
use crate::engine::{AcquireRequest, Proposal};
use crate::owner::{Entry, Owner};
use crate::sync::lock;

/// The holds of this client.
#[derive(Default)]
pub(super) struct Holds {
    by_owner: Mutex<HashMap<(LockName, Owner), Record>>,
}

/// The hold of one owner.
struct Record {
    fence: Fence,
    /// The entries that the nodes have. The last of them stays while entries are counted here.
    attempts: Vec<Arc<Attempt>>,
    /// Further entries, counted here.
    counted: Vec<Entry>,
    /// The entry of the last attempt was released, and stands for those that are counted.
    is_released: bool,
    /// How many it has now: a re-entry may ask for fewer, and a writer that became a reader has given back the others.
    permits: u32,
    /// Nodes that have taken it away, one bit each.
    lost: u8,
}

/// What the release of an entry means for the nodes.
pub(super) enum Leaving {
    /// They have this entry, and must end it.
    AtNodes(Arc<Attempt>),
    /// It was counted here, or others are: so many entries are left.
    Counted { remaining: u32 },
    /// This client does not know it.
    Unknown,
}

impl Holds {
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.by_owner).is_empty()
    }

    /// Notes a grant. Latches have nothing to repair, and are not released. A party of a barrier is: it may still wait at
    /// nodes where the barrier has not opened.
    pub(super) fn add(&self, attempt: &Arc<Attempt>, fence: Fence) {
        if attempt.request.shape.kind() == Kind::Latch {
            return;
        }
        let key = (attempt.request.name.clone(), attempt.request.entry.owner);
        let mut holds = lock(&self.by_owner);
        let record = holds.entry(key).or_insert(Record {
            fence,
            attempts: Vec::new(),
            counted: Vec::new(),
            is_released: false,
            permits: 0,
            lost: 0,
        });
        (record.fence, record.lost) = (fence, 0);
        record.attempts.retain(|it| it.request.entry != attempt.request.entry);
        let before = if record.attempts.is_empty() { 0 } else { record.permits };
        record.permits = before.max(attempt.request.shape.permits());
        record.attempts.push(attempt.clone());
    }

    /// Counts a further entry of an owner that holds the lock. Returns the fence; none if the nodes must be asked.
    pub(super) fn enter(&self, request: &AcquireRequest) -> Option<Fence> {
        let (shape, entry) = (request.shape, request.entry);
        let mut holds = lock(&self.by_owner);
        if holds.is_empty() {
            return None;
        }
        let record = holds.get_mut(&(request.name.clone(), entry.owner))?;
        let first = record.attempts.first()?.request.shape;
        let is_same = first.kind() == shape.kind() && first.kind() != Kind::Barrier;
        let is_at_nodes = record.attempts.iter().any(|it| it.request.entry == entry);
        if !is_same || is_at_nodes || shape.permits() > record.permits {
            return None;
        }
        if !record.counted.contains(&entry) {
            record.counted.push(entry);
        }
        Some(record.fence)
    }

    /// Whether an entry is counted here.
    pub(super) fn is_counted(&self, name: &LockName, entry: Entry) -> bool {
        let holds = lock(&self.by_owner);
        holds
            .get(&(name.clone(), entry.owner))
            .is_some_and(|record| record.counted.contains(&entry))
    }

    /// An entry ends.
    pub(super) fn leave(&self, name: &LockName, entry: Entry) -> Leaving {
        let mut holds = lock(&self.by_owner);
        if holds.is_empty() {
            return Leaving::Unknown;
        }
        let key = (name.clone(), entry.owner);
        let Some(record) = holds.get_mut(&key) else { return Leaving::Unknown };
        let leaving = record.leave(entry);
        if record.attempts.is_empty() {
            holds.remove(&key);
        }
        leaving
    }

    /// An owner gives back its permits but so many, if this is its only entry.
    pub(super) fn keep(&self, name: &LockName, entry: Entry, permits: u32) -> Leaving {
        let mut holds = lock(&self.by_owner);
        let Some(record) = holds.get_mut(&(name.clone(), entry.owner)) else {
            return Leaving::Unknown;
        };
        if record.entries() > 1 {
            return record.remaining();
        }
        record.permits = record.permits.min(permits);
        record.attempts.last().cloned().map_or(Leaving::Unknown, Leaving::AtNodes)
    }

    /// How many entries an owner has, if this client counts some of them.
    pub(super) fn entries(&self, name: &LockName, owner: Owner) -> Option<u32> {
        let holds = lock(&self.by_owner);
        let record = holds.get(&(name.clone(), owner))?;
        (!record.counted.is_empty()).then(|| record.entries())
    }

    /// Forgets an owner, which another client releases. False if that one could not release it by this entry alone.
    pub(super) fn forget(&self, name: &LockName, owner: Owner) -> bool {
        let mut holds = lock(&self.by_owner);
        let key = (name.clone(), owner);
        let is_one = holds
            .get(&key)
            .is_none_or(|record| record.counted.is_empty() && record.attempts.len() == 1);
        if is_one {
            holds.remove(&key);
        }
        is_one
    }

    /// The attempt of an entry that a node has.
    pub(super) fn attempt_at(
        &self,
        node: usize,
        name: &LockName,
        entry: Entry,
    ) -> Option<Arc<Attempt>> {
        let holds = lock(&self.by_owner);
        let record = holds.get(&(name.clone(), entry.owner))?;
        record.attempts.iter().find(|it| it.entry_at(node) == entry).cloned()
    }

    /// How many permits the owner of an attempt has now; none if its entry has ended.
    pub(super) fn permits(&self, attempt: &Arc<Attempt>) -> Option<u32> {
        let holds = lock(&self.by_owner);
        let key = (attempt.request.name.clone(), attempt.request.entry.owner);
        let record = holds.get(&key)?;
        record.attempts.iter().any(|it| Arc::ptr_eq(it, attempt)).then_some(record.permits)
    }

    /// The attempts of an owner that holds the lock.
    pub(super) fn attempts_of(&self, name: &LockName, owner: Owner) -> Vec<Arc<Attempt>> {
        let holds = lock(&self.by_owner);
        holds.get(&(name.clone(), owner)).map_or_else(Vec::new, |record| record.attempts.clone())
    }

    /// The requests that repair a node: one for each entry that it is not known to have. None for a party of a barrier: it
    /// would arrive there once more.
    pub(super) fn repairs(
        &self,
        name: &LockName,
        owner: Owner,
        node: usize,
    ) -> Vec<(Arc<Attempt>, AcquireRequest)> {
        let holds = lock(&self.by_owner);
        let Some(record) = holds.get(&(name.clone(), owner)) else { return Vec::new() };
        let missing = record.attempts.iter().filter(|attempt| !attempt.is_held_at(node));
        let repair = |attempt: &Arc<Attempt>| {
            let shape = attempt.request.shape;
            if shape.kind() == Kind::Barrier {
                return None;
            }
            let shape = Shape::new(shape.kind(), shape.limit(), record.permits).ok()?;
            let proposal = Some(Proposal { fence: record.fence, is_repair: true });
            let entry = attempt.entry_at(node);
            let request =
                AcquireRequest { entry, shape, queue: None, proposal, ..attempt.request.clone() };
            Some((attempt.clone(), request))
        };
        missing.filter_map(repair).collect()
    }

    /// A node that had lost the hold has it again.
    pub(super) fn regain(&self, name: &LockName, owner: Owner, node: usize) {
        if let Some(record) = lock(&self.by_owner).get_mut(&(name.clone(), owner)) {
            record.lost &= !(1 << node);
        }
    }

    /// A node has taken the lock away from an owner. True if it has too few left: the first time only.
    pub(super) fn lose(&self, name: &LockName, owner: Owner, node: usize, nodes: usize) -> bool {
        let mut holds = lock(&self.by_owner);
        let key = (name.clone(), owner);
        let Some(record) = holds.get_mut(&key) else { return false };
        record.lost |= 1 << node;
        let needed = record.attempts.last().map_or(0, |it| lock(&it.state).candidate.needed());
        let is_lost = nodes - (record.lost.count_ones() as usize) < needed;
        if is_lost {
            holds.remove(&key);
        }
        is_lost
    }
}

impl Record {
    fn leave(&mut self, entry: Entry) -> Leaving {
        if let Some(at) = self.counted.iter().position(|it| *it == entry) {
            self.counted.swap_remove(at);
            let stands_alone = self.counted.is_empty() && self.is_released;
            return match self.attempts.pop_if(|_| stands_alone) {
                Some(attempt) => Leaving::AtNodes(attempt),
                None => self.remaining(),
            };
        }
        let Some(at) = self.attempts.iter().position(|it| it.request.entry == entry) else {
            return Leaving::Unknown;
        };
        if self.attempts.len() == 1 && !self.counted.is_empty() {
            if self.is_released {
                return Leaving::Unknown;
            }
            self.is_released = true;
            return self.remaining();
        }
        Leaving::AtNodes(self.attempts.swap_remove(at))
    }

    fn remaining(&self) -> Leaving {
        Leaving::Counted { remaining: self.entries() }
    }

    fn entries(&self) -> u32 {
        let at_nodes = self.attempts.len() - usize::from(self.is_released);
        (at_nodes + self.counted.len()) as u32
    }
}
