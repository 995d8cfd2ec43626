//! Forgetting locks whose holders went and that nobody has asked for since (rule 12).
//!
//! All others wait meanwhile, so it is done in slices: a record of its own says where to go on.

use std::time::Duration;

use super::record::Meta;
use super::transaction::{LOCK, Step, name_of};
use crate::clock;
use crate::core::moment::Now;
use crate::engine::local::liveness::Waiters;
use crate::error::StoreError;

/// Where the last slice ended.
const CURSOR: &[u8] = b"s";

/// Fewer records than this are never swept.
const SWEEP_FROM: u64 = 1024;

/// How many records an operation that makes a new one looks at.
const SLICE: usize = 64;

/// How long a full store is searched by one operation.
const SEARCH: Duration = Duration::from_millis(10);

impl Step<'_> {
    /// A slice, each time the number of records has doubled since all were looked at, until all are.
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

    /// Slices until `is_enough`, all were looked at, or others would wait too long. How many locks
    /// were forgotten.
    pub(crate) fn sweep_until(
        &mut self,
        now: Now,
        is_enough: impl Fn(&Self) -> Result<bool, StoreError>,
    ) -> Result<usize, StoreError> {
        let end = clock::now() + SEARCH;
        let (mut forgotten, mut rounds) = (0, 0);
        loop {
            let (some, is_last) = self.sweep_slice(now)?;
            forgotten += some;
            rounds += u32::from(is_last);
            // The first round began somewhere in the middle.
            if rounds == 2 || is_enough(self)? || clock::now() >= end {
                return Ok(forgotten);
            }
        }
    }

    /// Looks at a few more records. How many were forgotten, and whether these were the last.
    pub(crate) fn sweep_slice(&mut self, now: Now) -> Result<(usize, bool), StoreError> {
        let after = self.get(CURSOR)?.unwrap_or_default();
        let keys = self.keys(&[LOCK], &after, SLICE)?;
        let mut forgotten = 0;
        for key in &keys {
            if self.is_idle(key, now)? {
                self.delete(key)?;
                forgotten += 1;
            }
        }
        let is_last = keys.len() < SLICE;
        match keys.last() {
            Some(last) if !is_last => self.put(CURSOR, last)?,
            _ => self.delete(CURSOR)?,
        }
        Ok((forgotten, is_last))
    }

    fn is_idle(&mut self, key: &[u8], now: Now) -> Result<bool, StoreError> {
        let (Some(name), Some(bytes)) = (name_of(key), self.get(key)?) else {
            return Ok(false);
        };
        // One that cannot be read is told to whoever asks for it.
        let Ok(mut lock) = self.decode(&name, &bytes) else { return Ok(false) };
        self.settle_lives(&mut lock, now, Waiters::First);
        lock.holders.expire(now.clock);
        Ok(lock.is_idle())
    }
}
