//! Loads the locks of an operation from their records into the table. The record of an unreadable lock stays as it
//! is, and its error is recorded.

use super::listing::{self, Progress};
use super::record;
use super::transaction::{FORCED, LOCK, Subject, Transaction, key, name_of};
use crate::clock;
use crate::core::moment::Now;
use crate::core::name::LockName;
use crate::core::table::Table;
use crate::engine::local::errors;
use crate::engine::local::liveness::{self, Waiters};
use crate::error::StoreError;

/// How many keys a list reads at a time.
const KEYS: usize = 64;

impl Transaction<'_> {
    pub(crate) fn load(
        &mut self,
        subject: &mut Subject<'_>,
        table: &mut Table,
        now: Now,
    ) -> Result<(), StoreError> {
        match subject {
            Subject::Lock(name) => {
                self.load_lock(name, Waiters::First, table, now)?;
                self.ensure_readable()
            }
            Subject::Locks(names) => {
                names.iter().try_for_each(|name| self.load_lock(name, Waiters::First, table, now))
            }
            Subject::Inspected(name) => {
                self.load_lock(name, Waiters::All, table, now)?;
                self.ensure_readable()?;
                self.load_forced(name, table)
            }
            Subject::Slice(progress) => self.load_slice(progress, table, now),
        }
    }

    /// Loads the record of a forced release. The error of an unreadable one is recorded only, because the lock itself
    /// is readable.
    fn load_forced(&mut self, name: &LockName, table: &mut Table) -> Result<(), StoreError> {
        let forced = self.get(&key(FORCED, name.as_str()))?;
        match forced.map(|bytes| record::decode_forced(&bytes)) {
            Some(Ok(forced)) => table.put_forced(forced),
            Some(Err(why)) => {
                let what = format!("the forced release of `{name}`");
                let error = errors::of_record(self.store.folder(), &what, why);
                self.unreadable.push((name.clone(), error));
            }
            None => {}
        }
        Ok(())
    }

    /// Loads the locks of one slice, and updates its progress. No record behind the last listed lock is read.
    fn load_slice(
        &mut self,
        progress: &mut Progress,
        table: &mut Table,
        now: Now,
    ) -> Result<(), StoreError> {
        let (prefix, mut listed) = (key(LOCK, &progress.prefix), 0);
        let end = clock::now() + listing::SLICE;
        loop {
            let keys = self.keys(&prefix, &progress.after, KEYS)?;
            progress.is_done = keys.is_empty();
            if progress.is_done {
                return Ok(());
            }
            for key in keys {
                // A key that is not a valid name belongs to no lock.
                if let Some(name) = name_of(&key) {
                    self.load_lock(&name, Waiters::First, table, now)?;
                    // An unreadable lock is listed, too.
                    let lock = table.lock_mut(&name);
                    let is_listed = lock.is_none_or(|lock| liveness::is_in_use(lock, now.clock));
                    listed += usize::from(is_listed);
                }
                progress.after = key;
                progress.is_done = listed == progress.remaining;
                if progress.is_done || clock::now() >= end {
                    return Ok(());
                }
            }
        }
    }

    /// Refuses an operation on an unreadable lock.
    fn ensure_readable(&mut self) -> Result<(), StoreError> {
        self.unreadable.pop().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Loads a lock in its present state: without dead clients. The error of an unreadable one is recorded.
    fn load_lock(
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
                Err(error) => {
                    self.unreadable.push((name.clone(), error));
                    return Ok(());
                }
            };
            self.settle_liveness(&mut lock, now, waiters);
            table.put(name.clone(), lock);
        }
        self.loaded.push((name.clone(), bytes));
        Ok(())
    }
}
