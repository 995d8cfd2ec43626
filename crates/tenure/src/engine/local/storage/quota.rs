//! A limit below the size of the map. LMDB never overwrites a page in use, so that a release needs free pages as
//! well: in a completely full map, no lock could be released. Therefore no record may grow above the limit, and the
//! rest is for operations that shrink records or keep their size.

#[cfg(test)]
mod tests;

use std::sync::Mutex;
use std::time::Duration;

use super::record;
use super::transaction::Transaction;
use crate::core::moment::{Moment, Now};
use crate::core::table::Table;
use crate::engine::local::errors;
use crate::error::StoreError;
use crate::sync::lock;

/// The pause after a sweep of a full store that removed nothing, because all other operations wait during a sweep.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// When this process last swept a full store without removing anything.
#[derive(Default)]
pub(crate) struct SweepThrottle(Mutex<Option<Moment>>);

impl SweepThrottle {
    fn is_due(&self, now: Moment) -> bool {
        lock(&self.0).is_none_or(|last| now.since(last) >= SWEEP_EVERY)
    }

    fn record_futile(&self, now: Moment) {
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
    /// Half of the map: the other half is for two copies of the largest record, the new one and the one before it,
    /// and for fragmentation.
    pub(crate) const fn limit(self) -> usize {
        self.map / 2
    }

    /// The largest size to which a record may grow.
    const fn max_record(self) -> usize {
        self.map / 8
    }
}

impl Transaction<'_> {
    pub(crate) fn quota(&self) -> Result<Quota, StoreError> {
        let stat = self.store.records.stat(&self.txn);
        let stat = stat.map_err(|error| self.refused(&error))?;
        let pages = stat.branch_pages + stat.leaf_pages + stat.overflow_pages;
        let map = self.store.env.info().map_size;
        Ok(Quota { used: pages * stat.page_size as usize, map })
    }

    /// Whether the records that an operation has made longer fit, if necessary after a sweep of locks that are not in
    /// use.
    pub(crate) fn fits_quota(&mut self, table: &mut Table, now: Now) -> Result<bool, StoreError> {
        let quota = self.quota()?;
        let is_large = |bytes: &Option<Vec<u8>>| {
            bytes.as_ref().is_some_and(|bytes| bytes.len() > quota.max_record())
        };
        let has_large = self.loaded.iter().any(|(_, before)| is_large(before));
        if !has_large && quota.used < quota.limit() || !self.grows(table) {
            return Ok(true);
        }
        if has_large || !self.store.sweep_throttle.is_due(now.clock) {
            return Ok(false);
        }
        let is_below_limit = |transaction: &Self| Ok(transaction.quota()?.used < quota.limit());
        if self.sweep_until(now, is_below_limit)? == 0 {
            self.store.sweep_throttle.record_futile(now.clock);
        }
        is_below_limit(self)
    }

    /// Refuses an operation that exceeds the quota, before any of it is written. The sweep is committed, so that the
    /// next one continues from there.
    pub(crate) fn into_full_error(self) -> StoreError {
        let (store, quota) = (self.store, self.quota());
        match quota.and_then(|quota| self.commit().map(|()| quota)) {
            Ok(quota) => errors::of_full(store.folder(), quota.limit()),
            Err(error) => error,
        }
    }

    fn grows(&self, table: &mut Table) -> bool {
        self.loaded.iter().any(|(name, before)| {
            let before = before.as_ref().map_or(0, Vec::len);
            let lock = table.lock_mut(name).filter(|lock| !lock.is_idle());
            lock.is_some_and(|lock| record::encode_lock(lock).len() > before)
        })
    }
}
