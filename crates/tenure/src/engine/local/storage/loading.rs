//! Brings the locks that an operation is about from their records to the table. One that cannot be
//! read stays where it is, and is noted.

use super::listing::{self, Progress};
use super::record;
use super::transaction::{FORCED, LOCK, Step, Subject, key, name_of};
use crate::clock;
use crate::core::moment::Now;
use crate::core::name::LockName;
use crate::core::table::Table;
use crate::engine::local::errors;
use crate::engine::local::liveness::{self, Waiters};
use crate::error::StoreError;

/// How many keys a list reads at a time.
const KEYS: usize = 64;

impl Step<'_> {
    pub(crate) fn bring(
        &mut self,
        subject: &mut Subject<'_>,
        table: &mut Table,
        now: Now,
    ) -> Result<(), StoreError> {
        match subject {
            Subject::Lock(name) => {
                self.bring_lock(name, Waiters::First, table, now)?;
                self.ensure_readable()
            }
            Subject::Locks(names) => {
                names.iter().try_for_each(|name| self.bring_lock(name, Waiters::First, table, now))
            }
            Subject::Inspected(name) => {
                self.bring_lock(name, Waiters::All, table, now)?;
                self.ensure_readable()?;
                self.bring_forced(name, table)
            }
            Subject::Below(progress) => self.bring_below(progress, table, now),
        }
    }

    /// Brings the record of a forced release. One that cannot be read is noted, because the lock
    /// itself can be.
    fn bring_forced(&mut self, name: &LockName, table: &mut Table) -> Result<(), StoreError> {
        let forced = self.get(&key(FORCED, name.as_str()))?;
        match forced.map(|bytes| record::decode_forced(&bytes)) {
            Some(Ok(forced)) => table.put_forced(forced),
            Some(Err(why)) => {
                let what = format!("the forced release of `{name}`");
                let trouble = errors::of_record(self.store.folder(), &what, why);
                self.unreadable.push((name.clone(), trouble));
            }
            None => {}
        }
        Ok(())
    }

    /// Brings the locks of one slice, and notes how far that is. What lies behind the last one that is
    /// wanted is not looked at.
    fn bring_below(
        &mut self,
        progress: &mut Progress,
        table: &mut Table,
        now: Now,
    ) -> Result<(), StoreError> {
        let (prefix, mut needed) = (key(LOCK, &progress.prefix), 0);
        let end = clock::now() + listing::SLICE;
        loop {
            let keys = self.keys(&prefix, &progress.after, KEYS)?;
            progress.is_over = keys.is_empty();
            if progress.is_over {
                return Ok(());
            }
            for key in keys {
                // Nobody can ask for a lock whose name is none.
                if let Some(name) = name_of(&key) {
                    self.bring_lock(&name, Waiters::First, table, now)?;
                    // One that cannot be read is shown, too.
                    let lock = table.lock_mut(&name);
                    let is_shown = lock.is_none_or(|lock| liveness::is_needed(lock, now.clock));
                    needed += usize::from(is_shown);
                }
                progress.after = key;
                progress.is_over = needed == progress.most;
                if progress.is_over || clock::now() >= end {
                    return Ok(());
                }
            }
        }
    }

    /// Refuses an operation on a lock that cannot be read.
    fn ensure_readable(&mut self) -> Result<(), StoreError> {
        self.unreadable.pop().map_or(Ok(()), |(_, trouble)| Err(trouble))
    }

    /// Brings a lock as it is now: without those whose client is gone. One that cannot be read is
    /// noted.
    fn bring_lock(
        &mut self,
        name: &LockName,
        waiters: Waiters,
        table: &mut Table,
        now: Now,
    ) -> Result<(), StoreError> {
        if table.lock_mut(name).is_some() {
            return Ok(());
        }
        let bytes = self.get(&key(LOCK, name.as_str()))?;
        if let Some(bytes) = &bytes {
            let mut lock = match self.decode(name, bytes) {
                Ok(lock) => lock,
                Err(trouble) => {
                    self.unreadable.push((name.clone(), trouble));
                    return Ok(());
                }
            };
            self.settle_lives(&mut lock, now, waiters);
            table.put(name.clone(), lock);
        }
        self.brought.push((name.clone(), bytes));
        Ok(())
    }
}
