//! What this client holds: which nodes are known to hold it, and what is needed to repair one that lost it.
//!
//! **Re-entries.** A further entry of an owner that holds the lock is counted here, and no node learns of it: a node that had
//! missed it would free the lock with the release of the first one (I1). Two entries of an owner are at the nodes only
//! if they were asked for at the same time, or by different clients. So a node counts for a hold only if it says that it has
//! *every* entry of the owner that this client has at the nodes.
//!
//! **Lost holds** stay until their entries end. What the same owner is granted later is another hold: it does not stand for
//! entries that were counted before, and their end does not concern it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::attempt::{Attempt, Caller};
use super::record::Record;
use crate::clock;
use crate::core::fence::Fence;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::core::shape::Kind;
use crate::engine::{AcquireRequest, Grant};
use crate::owner::{Entry, Owner};
use crate::sync::lock;

/// The holds of this client. Of one owner, the last one may be valid; those before it were lost.
#[derive(Default)]
pub(super) struct Holds {
    by_owner: Mutex<ByOwner>,
}

type ByOwner = HashMap<(LockName, Owner), Vec<Record>>;

fn is_in(holds: &ByOwner, attempt: &Arc<Attempt>) -> bool {
    let key = (attempt.request.name.clone(), attempt.request.entry.owner);
    let has = |record: &Record| record.permits(attempt).is_some();
    holds.get(&key).is_some_and(|records| records.iter().any(has))
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
    pub(super) fn add(&self, attempt: &Arc<Attempt>, grant: &Grant) {
        if attempt.request.shape.kind() == Kind::Latch {
            return;
        }
        let (now, entry) = (clock::now(), attempt.request.entry);
        let key = (attempt.request.name.clone(), entry.owner);
        let mut holds = lock(&self.by_owner);
        // Cancelled meanwhile: the cancel has not found it here, or ends it after this.
        if attempt.has_ended() {
            return;
        }
        let records = holds.entry(key).or_default();
        let mut current = records.pop_if(|record| !record.is_over(now)).unwrap_or_else(Record::new);
        records.iter_mut().for_each(|record| record.remove(entry));
        records.retain(|record| !record.is_empty());
        current.add(attempt, grant, now);
        records.push(current);
    }

    /// Counts a further entry of an owner that holds the lock. Returns the fence; none if the nodes must be asked.
    pub(super) fn enter(&self, request: &AcquireRequest) -> Option<Fence> {
        self.with_last(&request.name, request.entry.owner, |record| {
            if record.is_over(clock::now()) { None } else { record.enter(request) }
        })?
    }

    /// The fence of the hold in which an entry is counted; none if it was given up.
    pub(super) fn fence_of(&self, name: &LockName, entry: Entry) -> Option<Fence> {
        let holds = lock(&self.by_owner);
        let record = holds.get(&(name.clone(), entry.owner))?.last()?;
        record.counts(entry).then_some(record.fence)
    }

    /// Whether the hold in which an entry is counted has been lost.
    pub(super) fn is_lost(&self, name: &LockName, entry: Entry) -> bool {
        let is_lost = |record: &mut Record| record.counts(entry) && record.is_over(clock::now());
        self.with_last(name, entry.owner, is_lost).unwrap_or(false)
    }

    /// The nodes say that the hold with this fence is lost. True if guards may rely on it, and must know.
    pub(super) fn give_up(&self, name: &LockName, owner: Owner, fence: Fence) -> bool {
        let give_up = |record: &mut Record| record.fence == fence && record.end(clock::now());
        self.with_last(name, owner, give_up).unwrap_or(false)
    }

    /// A majority has confirmed the hold of an entry: it may be relied on until then.
    pub(super) fn extend(&self, name: &LockName, entry: Entry, until: Moment) {
        self.with_last(name, entry.owner, |record| {
            if record.is_in(entry) {
                record.extend(until);
            }
        });
    }

    /// An entry ends.
    pub(super) fn leave(&self, name: &LockName, entry: Entry) -> Leaving {
        let mut holds = lock(&self.by_owner);
        if holds.is_empty() {
            return Leaving::Unknown;
        }
        let key = (name.clone(), entry.owner);
        let Some(records) = holds.get_mut(&key) else { return Leaving::Unknown };
        let known = records.iter_mut().rev().find(|record| record.knows(entry));
        let leaving = known.map_or(Leaving::Unknown, |record| record.leave(entry));
        records.retain(|record| !record.is_empty());
        if records.is_empty() {
            holds.remove(&key);
        }
        leaving
    }

    /// An owner gives back its permits but so many, if this is its only entry.
    pub(super) fn keep(&self, name: &LockName, entry: Entry, permits: u32) -> Leaving {
        let keep = |record: &mut Record| record.knows(entry).then(|| record.keep(permits));
        self.with_last(name, entry.owner, keep).flatten().unwrap_or(Leaving::Unknown)
    }

    /// How many entries an owner has, if this client counts some of them.
    pub(super) fn entries(&self, name: &LockName, owner: Owner) -> Option<u32> {
        let count = |record: &mut Record| record.has_counted().then(|| record.entries());
        self.with_last(name, owner, count)?
    }

    /// Forgets the hold of an entry, which another client releases. False if that one could not release it by this entry alone.
    pub(super) fn forget(&self, name: &LockName, entry: Entry) -> bool {
        let mut holds = lock(&self.by_owner);
        let key = (name.clone(), entry.owner);
        let Some(records) = holds.get_mut(&key) else { return true };
        let Some(at) = records.iter().rposition(|record| record.knows(entry)) else { return true };
        if !records[at].has_one_entry() {
            return false;
        }
        records.remove(at);
        if records.is_empty() {
            holds.remove(&key);
        }
        true
    }

    /// Ends a question whose entry is released or cancelled. Not one that was granted meanwhile and has become an attempt of the hold:
    /// it stands for the other entries. Returns its callers.
    pub(super) fn end_question(&self, question: &Arc<Attempt>) -> Vec<Caller> {
        let holds = lock(&self.by_owner);
        match is_in(&holds, question) {
            true => question.take_callers(),
            false => question.end(),
        }
    }

    /// Whether an attempt is one of a hold.
    pub(super) fn has(&self, attempt: &Arc<Attempt>) -> bool {
        is_in(&lock(&self.by_owner), attempt)
    }

    /// The attempt of an entry that a node has.
    pub(super) fn attempt_at(
        &self,
        node: usize,
        name: &LockName,
        entry: Entry,
    ) -> Option<Arc<Attempt>> {
        let holds = lock(&self.by_owner);
        let mut attempts =
            holds.get(&(name.clone(), entry.owner))?.iter().flat_map(Record::attempts);
        attempts.find(|it| it.entry_at(node) == entry).cloned()
    }

    /// The attempt by which an entry is held.
    pub(super) fn attempt_of(&self, name: &LockName, entry: Entry) -> Option<Arc<Attempt>> {
        let holds = lock(&self.by_owner);
        if holds.is_empty() {
            return None;
        }
        let mut attempts =
            holds.get(&(name.clone(), entry.owner))?.iter().flat_map(Record::attempts);
        attempts.find(|it| it.request.entry == entry).cloned()
    }

    /// How many permits the owner of an attempt has now; none if its entry has ended.
    pub(super) fn permits(&self, attempt: &Arc<Attempt>) -> Option<u32> {
        self.terms(attempt).map(|(permits, _)| permits)
    }

    /// The permits and the fence of an attempt; none if its entry has ended.
    pub(super) fn terms(&self, attempt: &Arc<Attempt>) -> Option<(u32, Fence)> {
        let holds = lock(&self.by_owner);
        let key = (attempt.request.name.clone(), attempt.request.entry.owner);
        let terms = |record: &Record| Some((record.permits(attempt)?, record.fence));
        holds.get(&key)?.iter().find_map(terms)
    }

    /// What nodes have of the hold of an entry; none if this client does not know the entry. Of one that has ended, or whose hold
    /// was lost, nothing.
    pub(super) fn attempts_for(&self, name: &LockName, entry: Entry) -> Option<Vec<Arc<Attempt>>> {
        let holds = lock(&self.by_owner);
        let (last, lost) = holds.get(&(name.clone(), entry.owner))?.split_last()?;
        if last.is_in(entry) {
            return Some(last.attempts().cloned().collect());
        }
        let is_known = last.knows(entry) || lost.iter().any(|record| record.knows(entry));
        is_known.then(Vec::new)
    }

    /// The requests that repair a node for the hold of an entry: one for each entry that it is not known to have.
    pub(super) fn repairs(
        &self,
        name: &LockName,
        entry: Entry,
        node: usize,
        may_end: impl Fn(Entry) -> bool,
    ) -> Vec<(Arc<Attempt>, AcquireRequest)> {
        let repairs = |record: &mut Record| match record.is_in(entry) {
            true => record.repairs(node, clock::now(), may_end),
            false => Vec::new(),
        };
        self.with_last(name, entry.owner, repairs).unwrap_or_default()
    }

    /// Whether a node has taken the lock away from an owner, and has not got it back since.
    pub(super) fn is_lost_at(&self, name: &LockName, owner: Owner, node: usize) -> bool {
        self.with_last(name, owner, |record| record.is_lost_at(node)).unwrap_or(false)
    }

    /// A node that had lost the hold has it again.
    pub(super) fn regain(&self, name: &LockName, owner: Owner, node: usize) {
        self.with_last(name, owner, |record| record.regain(node));
    }

    /// A node has taken the lock away from an owner. True if it has too few left: the first time only.
    pub(super) fn lose(&self, name: &LockName, owner: Owner, node: usize, nodes: usize) -> bool {
        let lose = |record: &mut Record| {
            record.lose(node);
            record.is_lost(nodes) && record.end(clock::now())
        };
        self.with_last(name, owner, lose).unwrap_or(false)
    }

    fn with_last<T>(
        &self,
        name: &LockName,
        owner: Owner,
        act: impl FnOnce(&mut Record) -> T,
    ) -> Option<T> {
        let mut holds = lock(&self.by_owner);
        if holds.is_empty() {
            return None;
        }
        holds.get_mut(&(name.clone(), owner))?.last_mut().map(act)
    }
}
