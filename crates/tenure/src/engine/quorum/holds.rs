//! What this client holds: which nodes are known to hold it, and what is needed to repair one that lost it.

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
    /// One for each of its entries.
    attempts: Vec<Arc<Attempt>>,
    /// How many it has now: a re-entry may ask for fewer, and a writer that became a reader has given back the others.
    permits: u32,
    /// Nodes that have taken it away, one bit each.
    lost: u8,
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
        let new = Record { fence, attempts: Vec::new(), permits: 0, lost: 0 };
        let record = holds.entry(key).or_insert(new);
        (record.fence, record.lost) = (fence, 0);
        record.attempts.retain(|it| it.request.entry != attempt.request.entry);
        let before = if record.attempts.is_empty() { 0 } else { record.permits };
        record.permits = before.max(attempt.request.shape.permits());
        record.attempts.push(attempt.clone());
    }

    /// Removes an entry that is being released. Returns its attempt, which knows which nodes hold it.
    pub(super) fn remove(&self, name: &LockName, entry: Entry) -> Option<Arc<Attempt>> {
        let mut holds = lock(&self.by_owner);
        if holds.is_empty() {
            return None;
        }
        let key = (name.clone(), entry.owner);
        let record = holds.get_mut(&key)?;
        let at = record.attempts.iter().position(|it| it.request.entry == entry)?;
        let attempt = record.attempts.swap_remove(at);
        if record.attempts.is_empty() {
            holds.remove(&key);
        }
        Some(attempt)
    }

    /// An owner gives back its permits but so many, if this is its only entry. Returns its attempt then.
    pub(super) fn keep(&self, name: &LockName, entry: Entry, permits: u32) -> Option<Arc<Attempt>> {
        let mut holds = lock(&self.by_owner);
        let record = holds.get_mut(&(name.clone(), entry.owner))?;
        let [only] = &record.attempts[..] else { return None };
        if only.request.entry != entry {
            return None;
        }
        record.permits = record.permits.min(permits);
        Some(only.clone())
    }

    /// Forgets an owner, which another client releases.
    pub(super) fn forget(&self, name: &LockName, owner: Owner) {
        lock(&self.by_owner).remove(&(name.clone(), owner));
    }

    /// The attempt of an entry that holds the lock.
    pub(super) fn attempt(&self, name: &LockName, entry: Entry) -> Option<Arc<Attempt>> {
        let holds = lock(&self.by_owner);
        let record = holds.get(&(name.clone(), entry.owner))?;
        record.attempts.iter().find(|it| it.request.entry == entry).cloned()
    }

    /// How many permits the owner of an entry has now; none if the entry has ended.
    pub(super) fn permits(&self, name: &LockName, entry: Entry) -> Option<u32> {
        let holds = lock(&self.by_owner);
        let record = holds.get(&(name.clone(), entry.owner))?;
        record.attempts.iter().any(|it| it.request.entry == entry).then_some(record.permits)
    }

    /// One attempt of an owner that holds the lock.
    pub(super) fn attempt_of(&self, name: &LockName, owner: Owner) -> Option<Arc<Attempt>> {
        lock(&self.by_owner).get(&(name.clone(), owner))?.attempts.last().cloned()
    }

    /// A request that repairs a node. None for a party of a barrier: it would arrive there once more.
    pub(super) fn repair(
        &self,
        name: &LockName,
        owner: Owner,
    ) -> Option<(Arc<Attempt>, AcquireRequest)> {
        let holds = lock(&self.by_owner);
        let record = holds.get(&(name.clone(), owner))?;
        let attempt = record.attempts.last()?.clone();
        let shape = attempt.request.shape;
        if shape.kind() == Kind::Barrier {
            return None;
        }
        let shape = Shape::new(shape.kind(), shape.limit(), record.permits).ok()?;
        let proposal = Some(Proposal { fence: record.fence, is_repair: true });
        let request = AcquireRequest { shape, queue: None, proposal, ..attempt.request.clone() };
        Some((attempt, request))
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
