//! Re-entries counted in this process: the second and later entries of an owner cost no trip to
//! the store.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Driver, Held, Identity, Spec};
use crate::clock;
use crate::core::name::LockName;
use crate::error::Error;
use crate::guard::Guard;
use crate::owner::Owner;
use crate::sync::lock;

/// Holds that are counted here, and how often each was entered.
pub(super) type Reentries = HashMap<(LockName, Owner), (Arc<Held>, u32)>;

impl Driver {
    /// One more entry into a hold of the same owner in this process.
    pub(super) fn enter_locally(&self, spec: &Spec) -> Result<Option<Guard>, Error> {
        if !spec.counts_locally() {
            return Ok(None);
        }
        let owner = match spec.identity {
            Identity::Given { owner, .. } => owner,
            _ => spec.entry()?.owner,
        };
        let mut reentries = lock(&self.reentries);
        let found = reentries.get_mut(&(spec.name.clone(), owner));
        Ok(found.filter(|(held, _)| held.lost(clock::now()).is_none()).map(|(held, count)| {
            *count += 1;
            Guard::counted(held.clone())
        }))
    }

    /// Begins to count, if that was asked for and the owner has no other count here.
    pub(super) fn count_locally(&self, spec: &Spec, guard: Guard) -> Guard {
        if !spec.counts_locally() {
            return guard;
        }
        let key = (spec.name.clone(), guard.owner());
        let mut reentries = lock(&self.reentries);
        let is_counted =
            reentries.get(&key).is_some_and(|(held, _)| held.lost(clock::now()).is_none());
        if is_counted {
            return guard;
        }
        let held = guard.into_held();
        reentries.insert(key, (held.clone(), 1));
        Guard::counted(held)
    }

    /// Begins to count the entries into a new hold.
    pub(super) fn begin_count(&self, held: &Arc<Held>) {
        lock(&self.reentries).insert((held.name.clone(), held.entry.owner), (held.clone(), 1));
    }

    /// One more entry into a hold that is counted here; false if its last entry has just ended.
    pub(super) fn count_once_more(&self, held: &Arc<Held>) -> bool {
        let key = (held.name.clone(), held.entry.owner);
        let mut reentries = lock(&self.reentries);
        match reentries.get_mut(&key).filter(|(counted, _)| Arc::ptr_eq(counted, held)) {
            Some((_, count)) => {
                *count += 1;
                true
            }
            None => false,
        }
    }

    /// Ends one counted entry. True if it was the last, and the hold itself must end.
    pub(crate) fn leave_locally(&self, held: &Arc<Held>) -> bool {
        let is_last = self.count_once_less(held);
        if is_last {
            self.stop_reading_along(held);
        }
        is_last
    }

    fn count_once_less(&self, held: &Arc<Held>) -> bool {
        let key = (held.name.clone(), held.entry.owner);
        let mut reentries = lock(&self.reentries);
        match reentries.get_mut(&key).filter(|(counted, _)| Arc::ptr_eq(counted, held)) {
            Some((_, count)) if *count > 1 => {
                *count -= 1;
                false
            }
            Some(_) => {
                reentries.remove(&key);
                true
            }
            // Lost, and replaced by a newer hold of the same owner.
            None => true,
        }
    }
}
