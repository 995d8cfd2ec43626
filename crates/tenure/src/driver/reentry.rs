//! Re-entries counted in this process: the second and later entries of an owner cost no trip to
//! the store.
//!
//! Lock order: the counts' mutex is innermost; shared reads take it while they hold theirs. While it is
//! held, no engine is called, no guard is dropped and no foreign code runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::{Held, Identity, Spec};
use crate::clock;
use crate::core::name::LockName;
use crate::core::shape::{Kind, Shape};
use crate::error::Error;
use crate::guard::Guard;
use crate::owner::Owner;
use crate::sync::lock;

/// The holds whose entries are counted in this process.
#[derive(Default)]
pub(super) struct Reentries {
    counts: Mutex<HashMap<Key, Counted>>,
}

type Key = (LockName, Owner);

/// One of them.
struct Counted {
    held: Arc<Held>,
    /// The permits held: a further entry must not ask for more.
    shape: Shape,
    entries: u32,
}

impl Reentries {
    /// One more entry into a hold of the same owner in this process, with the answer that the store
    /// would give: counting locally does not extend what is held.
    pub(super) fn enter(&self, spec: &Spec) -> Result<Option<Guard>, Error> {
        if !spec.counts_locally() {
            return Ok(None);
        }
        let owner = match spec.identity {
            Identity::Given { owner, .. } => owner,
            _ => spec.entry()?.owner,
        };
        let mut counts = lock(&self.counts);
        let found = counts.get_mut(&(spec.name.clone(), owner));
        let Some(counted) = found.filter(|it| it.held.lost(clock::now()).is_none()) else {
            return Ok(None);
        };
        let (wanted, held) = (spec.shape, counted.shape);
        let (kind, limit) = (held.kind(), held.limit());
        if wanted.limit() != limit && (wanted.kind(), kind) == (Kind::Semaphore, Kind::Semaphore) {
            // The latest request sets the limit, so the store must receive it.
            return Ok(None);
        }
        if wanted.kind() != kind || wanted.limit() != limit {
            return Err(Error::Mismatch { name: spec.name.clone(), kind, limit });
        }
        if wanted.permits() > held.permits() {
            return Err(Error::Upgrade { name: spec.name.clone(), held: held.permits() });
        }
        counted.entries += 1;
        Ok(Some(Guard::counted(counted.held.clone())))
    }

    /// Starts to count entries into a new hold, if the options say so and the owner has no other count here.
    pub(super) fn count_if_wanted(&self, spec: &Spec, guard: Guard) -> Guard {
        if !spec.counts_locally() || self.is_counted(&(spec.name.clone(), guard.owner())) {
            return guard;
        }
        let held = guard.into_held();
        self.count(&held, spec.shape);
        Guard::counted(held)
    }

    fn is_counted(&self, key: &Key) -> bool {
        let counts = lock(&self.counts);
        counts.get(key).is_some_and(|counted| counted.held.lost(clock::now()).is_none())
    }

    /// Starts to count the entries into a new hold.
    pub(super) fn count(&self, held: &Arc<Held>, shape: Shape) {
        let counted = Counted { held: held.clone(), shape, entries: 1 };
        let lost = lock(&self.counts).insert(key(held), counted);
        drop(lost);
    }

    /// One more entry into a counted hold; false if its last entry has just ended.
    pub(super) fn enter_again(&self, held: &Arc<Held>) -> bool {
        let mut counts = lock(&self.counts);
        match counts.get_mut(&key(held)).filter(|counted| Arc::ptr_eq(&counted.held, held)) {
            Some(counted) => {
                counted.entries += 1;
                true
            }
            None => false,
        }
    }

    /// A hold is to keep only so many permits. False if it must keep all, because the store does not know of further entries that
    /// are counted here (I1).
    pub(super) fn keep(&self, held: &Arc<Held>, permits: u32) -> bool {
        let mut counts = lock(&self.counts);
        match counts.get_mut(&key(held)).filter(|counted| Arc::ptr_eq(&counted.held, held)) {
            Some(counted) if counted.entries > 1 => false,
            Some(counted) => {
                // Before the store is asked: a further entry gets no more from now on, whatever its answer is.
                let kept = Shape::new(counted.shape.kind(), counted.shape.limit(), permits);
                counted.shape = kept.unwrap_or(counted.shape);
                true
            }
            None => true,
        }
    }

    /// Ends one counted entry. True if it was the last, and the hold itself must end.
    pub(super) fn leave(&self, held: &Arc<Held>) -> bool {
        let key = key(held);
        let mut counts = lock(&self.counts);
        match counts.get_mut(&key).filter(|counted| Arc::ptr_eq(&counted.held, held)) {
            Some(counted) if counted.entries > 1 => {
                counted.entries -= 1;
                false
            }
            Some(_) => {
                counts.remove(&key);
                true
            }
            // Lost, and replaced by a newer hold of the same owner.
            None => true,
        }
    }
}

fn key(held: &Held) -> Key {
    (held.name.clone(), held.entry.owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::block_on;
    use crate::{Lock, Tenure, WriteGuard};

    fn lock_of(tenure: &Tenure, owner: Owner, shape: Shape) -> Lock {
        tenure.lock("x").with_shape(Ok(shape)).owner(owner).count_locally()
    }

    /// I1: a writer that became a reader is not entered for writing, and stays a writer while another of its guards is.
    #[test]
    fn a_downgrade_is_known_to_further_entries() {
        let tenure = Tenure::memory().unwrap();
        let of = |permits| Shape::new(Kind::ReadWrite, Shape::MAX_LIMIT, permits).unwrap();
        let state = lock_of(&tenure, Owner::new(), of(Shape::MAX_LIMIT));
        let write = || block_on(state.try_acquire()).unwrap().map(WriteGuard).unwrap();
        let is_read_by_others = || block_on(tenure.rwlock("x").try_read()).unwrap().is_some();
        let (first, second) = (write(), write());
        let reader = block_on(first.downgrade());
        assert!(!is_read_by_others(), "the second guard writes");
        drop(reader);
        let reader = block_on(second.downgrade());
        assert!(is_read_by_others());
        let refused = block_on(state.try_acquire());
        assert!(matches!(refused, Err(Error::Upgrade { held: 1, .. })), "{refused:?}");
        drop(reader);
        drop(write());
    }

    /// I1: a further entry that is counted here gets the answer that the store would give.
    #[test]
    fn a_further_entry_gets_no_more_than_is_held() {
        let shape = |kind, limit, permits| Shape::new(kind, limit, permits).unwrap();
        let all = Shape::MAX_LIMIT;
        let reader = shape(Kind::ReadWrite, all, 1);
        let permits = |count| shape(Kind::Semaphore, 9, count);
        for (first, then) in [
            (reader, shape(Kind::ReadWrite, all, all)),
            (permits(2), permits(3)),
            (permits(3), permits(3)),
            (permits(3), permits(1)),
            (permits(3), shape(Kind::Semaphore, 8, 1)),
            (Shape::mutex(), permits(1)),
            (Shape::mutex(), reader),
            (Shape::mutex(), Shape::mutex()),
        ] {
            let owner = Owner::new();
            let counting = Tenure::memory().unwrap();
            let guard = block_on(lock_of(&counting, owner, first).try_acquire()).unwrap().unwrap();
            let counted = block_on(lock_of(&counting, owner, then).try_acquire());
            drop(guard);
            let stored = Tenure::memory().unwrap();
            let [first, then] = [first, then].map(|it| stored.lock("x").with_shape(Ok(it)));
            let guard = block_on(first.owner(owner).try_acquire()).unwrap().unwrap();
            let expected = block_on(then.owner(owner).try_acquire());
            let said = |result: &Result<Option<Guard>, Error>| match result {
                Ok(guard) => format!("{}", guard.is_some()),
                Err(error) => error.to_string(),
            };
            assert_eq!(said(&counted), said(&expected));
            drop(guard);
        }
    }
}
