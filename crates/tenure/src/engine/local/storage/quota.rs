//! Room for what makes room. LMDB never writes over a page that is in use, so that a release
//! needs pages as well: in a map that is full to the last of them, nobody could leave. Therefore
//! nothing may grow beyond a mark, and the rest is for what shrinks or stays as it is.

#[cfg(test)]
mod tests;

use std::sync::Mutex;
use std::time::Duration;

use super::record;
use super::transaction::Step;
use crate::core::moment::{Moment, Now};
use crate::core::table::Table;
use crate::engine::local::errors;
use crate::error::StoreError;
use crate::sync::lock;

/// After a search in vain a full store is left alone for this long, because all others wait
/// meanwhile.
const SEARCH_EVERY: Duration = Duration::from_secs(1);

/// When this process has searched a full store in vain.
#[derive(Default)]
pub(crate) struct Search(Mutex<Option<Moment>>);

impl Search {
    fn is_due(&self, now: Moment) -> bool {
        lock(&self.0).is_none_or(|last| now.since(last) >= SEARCH_EVERY)
    }

    fn was_in_vain(&self, now: Moment) {
        *lock(&self.0) = Some(now);
    }
}

/// How much of the map is in use, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    pub(crate) used: usize,
    map: usize,
}

impl Quota {
    /// Half of the map: the other half takes two copies of the longest record, the one that is
    /// being written and the one before it, and what lies between the pieces that are free.
    pub(crate) const fn limit(self) -> usize {
        self.map / 2
    }

    /// The longest that a record may become.
    const fn longest(self) -> usize {
        self.map / 8
    }
}

impl Step<'_> {
    pub(crate) fn quota(&self) -> Result<Quota, StoreError> {
        let stat = self.store.records.stat(&self.transaction);
        let stat = stat.map_err(|error| self.refused(&error))?;
        let pages = stat.branch_pages + stat.leaf_pages + stat.overflow_pages;
        let map = self.store.env.info().map_size;
        Ok(Quota { used: pages * stat.page_size as usize, map })
    }

    /// Whether there is room for what an operation has made longer, if need be after a search for
    /// what nobody needs.
    pub(crate) fn has_room(&mut self, table: &mut Table, now: Now) -> Result<bool, StoreError> {
        let quota = self.quota()?;
        let is_long = |bytes: &Option<Vec<u8>>| {
            bytes.as_ref().is_some_and(|bytes| bytes.len() > quota.longest())
        };
        let has_long = self.brought.iter().any(|(_, before)| is_long(before));
        if !has_long && quota.used < quota.limit() || !self.grows(table) {
            return Ok(true);
        }
        if has_long || !self.store.search.is_due(now.clock) {
            return Ok(false);
        }
        let has_room = |step: &Self| Ok(step.quota()?.used < quota.limit());
        if self.sweep_until(now, has_room)? == 0 {
            self.store.search.was_in_vain(now.clock);
        }
        has_room(self)
    }

    /// Refuses an operation for which there is no quota, before any of it is written. What was
    /// searched is kept, so that the next search goes on from there.
    pub(crate) fn full(self) -> StoreError {
        let (store, quota) = (self.store, self.quota());
        match quota.and_then(|quota| self.commit().map(|()| quota)) {
            Ok(quota) => errors::of_full(store.folder(), quota.limit()),
            Err(trouble) => trouble,
        }
    }

    fn grows(&self, table: &mut Table) -> bool {
        self.brought.iter().any(|(name, before)| {
            let before = before.as_ref().map_or(0, Vec::len);
            let lock = table.lock_mut(name).filter(|lock| !lock.is_idle());
            lock.is_some_and(|lock| record::encode_lock(lock).len() > before)
        })
    }
}
