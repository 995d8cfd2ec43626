//! Removes locks whose leases have ended and that were not requested since (rule 12).
//!
//! All other operations wait meanwhile, so that a sweep is done in slices; a record of its own is its cursor.

use std::time::Duration;

use super::record::Meta;
use super::transaction::{LOCK, Transaction, name_of};
use crate::clock;
use crate::core::moment::Now;
use crate::engine::local::liveness::Waiters;
use crate::error::StoreError;

/// Where the last slice ended.
const CURSOR: &[u8] = b"s";

/// Fewer records than this are never swept.
const SWEEP_FROM: u64 = 1024;

/// How many records an operation that creates a lock checks.
const SLICE: usize = 64;

/// How long one operation may sweep a full store.
const MAX_SWEEP: Duration = Duration::from_millis(10);

impl Transaction<'_> {
    /// Sweeps one slice, if the number of records has doubled since the last complete sweep.
    pub(crate) fn sweep(&mut self, meta: &mut Meta, now: Now) -> Result<(), StoreError> {
        if self.count()? < meta.sweep_at.max(SWEEP_FROM) {
            return Ok(());
        }
        let (_, is_last) = self.sweep_slice(now)?;
        if is_last {
            meta.sweep_at = self.count()? * 2;
        }
        Ok(())
    }

    /// Sweeps until `is_enough`, all locks were checked, or [`MAX_SWEEP`] is over. Returns how many locks were
    /// removed.
    pub(crate) fn sweep_until(
        &mut self,
        now: Now,
        is_enough: impl Fn(&Self) -> Result<bool, StoreError>,
    ) -> Result<usize, StoreError> {
        let end = clock::now() + MAX_SWEEP;
        let (mut removed, mut rounds) = (0, 0);
        loop {
            let (some, is_last) = self.sweep_slice(now)?;
            removed += some;
            rounds += u32::from(is_last);
            // The first round may have begun in the middle.
            if rounds == 2 || is_enough(self)? || clock::now() >= end {
                return Ok(removed);
            }
        }
    }

    /// Checks the next records. Returns how many were removed, and whether these were the last.
    pub(crate) fn sweep_slice(&mut self, now: Now) -> Result<(usize, bool), StoreError> {
        let after = self.get(CURSOR)?.unwrap_or_default();
        let keys = self.keys(&[LOCK], &after, SLICE)?;
        let mut removed = 0;
        for key in &keys {
            if self.is_idle(key, now)? {
                self.delete(key)?;
                removed += 1;
            }
        }
        let is_last = keys.len() < SLICE;
        match keys.last() {
            Some(last) if !is_last => self.put(CURSOR, last)?,
            _ => self.delete(CURSOR)?,
        }
        Ok((removed, is_last))
    }

    fn is_idle(&mut self, key: &[u8], now: Now) -> Result<bool, StoreError> {
        let (Some(name), Some(bytes)) = (name_of(key), self.get(key)?) else {
            return Ok(false);
        };
        // An unreadable record stays, so that a request for its lock reports it.
        let Ok(mut lock) = self.decode(&name, &bytes) else { return Ok(false) };
        self.settle_liveness(&mut lock, now, Waiters::First);
        lock.holders.expire(now.clock);
        Ok(lock.is_idle())
    }
}
