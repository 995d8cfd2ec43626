//! One operation in one write transaction: loads its locks into the table, applies the rules, and writes them back
//! (I1).

use std::ops::Bound;

use heed::types::Bytes;
use heed::{RoPrefix, RwTxn};

use super::listing::Progress;
use super::record::{self, Meta};
use super::store::Store;
use crate::clock;
use crate::core::lock::LockState;
use crate::core::moment::Now;
use crate::core::name::LockName;
use crate::core::table::{ClientId, Effects, Table};
use crate::engine::local::errors;
use crate::engine::local::liveness::client_files;
use crate::engine::local::liveness::{self, Waiters};
use crate::engine::local::waiting::store_mutex::{Patience, StoreGuard};
use crate::error::StoreError;

/// The first byte of a key.
pub(crate) const LOCK: u8 = b'l';
pub(crate) const FORCED: u8 = b'x';
const META: &[u8] = b"m";

/// How many records of forced releases are kept, as in the table.
const FORCED_KEPT: usize = 1000;

/// The locks of an operation.
pub(crate) enum Subject<'a> {
    Lock(&'a LockName),
    Locks(Vec<&'a LockName>),
    /// A lock for display: with the record of its forced release, and without any dead waiter.
    Inspected(&'a LockName),
    /// The next slice of a list. Locks that are not in use do not count.
    Slice(&'a mut Progress),
}

/// The result of an operation.
pub(crate) struct Done<T> {
    pub(crate) outcome: T,
    /// The wake-ups to deliver.
    pub(crate) effects: Effects,
    /// The locks among several that could not be read and were skipped, with their errors.
    pub(crate) unreadable: Vec<(LockName, StoreError)>,
}

pub(crate) struct Transaction<'s> {
    pub(crate) store: &'s Store,
    pub(crate) txn: RwTxn<'s>,
    /// Locks in the table, with the bytes that they were read from.
    pub(crate) loaded: Vec<(LockName, Option<Vec<u8>>)>,
    /// Locks whose records cannot be read. They stay as they are.
    pub(crate) unreadable: Vec<(LockName, StoreError)>,
    /// Clients whose liveness was checked, and whether they are dead.
    checked: Vec<(ClientId, bool)>,
    // Last, so that the transaction ends before the mutex is released.
    guard: StoreGuard<'s>,
}

impl<'s> Transaction<'s> {
    pub(crate) fn begin(store: &'s Store, patience: Patience) -> Result<Self, StoreError> {
        let guard = store.mutex.acquire(patience, || store.last_change())?;
        let txn = store.env.write_txn();
        let txn = txn.map_err(|error| errors::of_map(store.folder(), &error))?;
        Ok(Self {
            store,
            txn,
            loaded: Vec::new(),
            unreadable: Vec::new(),
            checked: Vec::new(),
            guard,
        })
    }

    /// Performs an operation. If it has a single lock, that lock must be readable.
    pub(crate) fn perform<T>(
        mut self,
        mut subject: Subject<'_>,
        operation: impl FnOnce(&mut Table, Now, &mut Effects) -> T,
    ) -> Result<Done<T>, StoreError> {
        // Read only now, under the mutex, so that it is not before the time of an earlier operation.
        let now = clock::both();
        let mut meta = self.read_meta()?;
        let mut table = Table::after(meta.last_fence);
        self.load(&mut subject, &mut table, now)?;
        let mut effects = Effects::new();
        let outcome = operation(&mut table, now, &mut effects);
        liveness::settle_grants(&mut table, &mut effects);
        if !self.fits_quota(&mut table, now)? {
            return Err(self.into_full_error());
        }
        let has_new = self.write_back(&mut table)?;
        if !matches!(subject, Subject::Inspected(_)) {
            self.write_forced(&table)?;
        }
        let before = meta;
        meta.last_fence = table.last_fence();
        if has_new {
            self.sweep(&mut meta, now)?;
        }
        if meta != before {
            self.write_meta(&meta)?;
        }
        let unreadable = std::mem::take(&mut self.unreadable);
        self.commit()?;
        Ok(Done { outcome, effects, unreadable })
    }

    /// Writes the records that have changed. True if one of them is new.
    fn write_back(&mut self, table: &mut Table) -> Result<bool, StoreError> {
        let mut has_new = false;
        for (name, before) in std::mem::take(&mut self.loaded) {
            let lock = table.lock_mut(&name).filter(|lock| !lock.is_idle());
            let after = lock.map(|lock| record::encode_lock(lock));
            has_new |= before.is_none() && after.is_some();
            match after {
                _ if before == after => {}
                Some(bytes) => self.put(&key(LOCK, name.as_str()), &bytes)?,
                None => self.delete(&key(LOCK, name.as_str()))?,
            }
        }
        Ok(has_new)
    }

    /// Writes the record of a forced release, and deletes the oldest one above the limit.
    fn write_forced(&mut self, table: &Table) -> Result<(), StoreError> {
        let Some(forced) = table.last_forced() else {
            return Ok(());
        };
        self.put(&key(FORCED, forced.name.as_str()), &record::encode_forced(forced))?;
        let mut kept = Vec::new();
        for entry in self.with_prefix(&[FORCED])? {
            let (key, bytes) = entry.map_err(|error| self.refused(&error))?;
            kept.push((record::forced_at(bytes), key.to_vec()));
        }
        if kept.len() > FORCED_KEPT
            && let Some((_, oldest)) = kept.into_iter().min()
        {
            self.delete(&oldest)?;
        }
        Ok(())
    }

    /// Applies the present liveness of its clients to a lock.
    pub(crate) fn settle_liveness(&mut self, lock: &mut LockState, now: Now, waiters: Waiters) {
        liveness::expire_dead(lock, now.clock, waiters, |client_id| self.is_dead(client_id));
        liveness::extend_inherited(lock, now.clock, |client_id| {
            !self.is_dead(client_id) && client_files::is_inherited(&self.store.clients, client_id)
        });
    }

    /// Whether a client is dead. Checked once per transaction: a dead client stays dead.
    pub(crate) fn is_dead(&mut self, client_id: ClientId) -> bool {
        if let Some((_, is_dead)) = self.checked.iter().find(|(checked, _)| *checked == client_id) {
            return *is_dead;
        }
        let is_dead = self.store.is_dead(client_id);
        self.checked.push((client_id, is_dead));
        is_dead
    }

    pub(crate) fn decode(&self, name: &LockName, bytes: &[u8]) -> Result<LockState, StoreError> {
        let unreadable = |why| errors::of_record(self.store.folder(), &format!("`{name}`"), why);
        record::decode_lock(bytes).map_err(unreadable)
    }

    pub(crate) fn refused(&self, error: &heed::Error) -> StoreError {
        errors::of_map(self.store.folder(), error)
    }
}

/// Access to single records.
impl Transaction<'_> {
    pub(crate) fn read_meta(&self) -> Result<Meta, StoreError> {
        let Some(bytes) = self.get(META)? else {
            return Ok(Meta::default());
        };
        Meta::decode(&bytes)
            .map_err(|why| errors::of_record(self.store.folder(), "the store itself", why))
    }

    pub(crate) fn write_meta(&mut self, meta: &Meta) -> Result<(), StoreError> {
        self.put(META, &meta.encode())
    }

    /// The number of records, of all kinds.
    pub(crate) fn count(&self) -> Result<u64, StoreError> {
        let count = self.store.records.len(&self.txn);
        count.map_err(|error| self.refused(&error))
    }

    /// The next keys with this prefix, in order, after the given one.
    pub(crate) fn keys(
        &self,
        prefix: &[u8],
        after: &[u8],
        most: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let begin = if after < prefix { Bound::Included(prefix) } else { Bound::Excluded(after) };
        let found = self.store.records.range(&self.txn, &(begin, Bound::Unbounded));
        let mut keys = Vec::new();
        for entry in found.map_err(|error| self.refused(&error))?.take(most) {
            let (key, _) = entry.map_err(|error| self.refused(&error))?;
            if !key.starts_with(prefix) {
                break;
            }
            keys.push(key.to_vec());
        }
        Ok(keys)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.store.records.get(&self.txn, key);
        Ok(found.map_err(|error| self.refused(&error))?.map(<[u8]>::to_vec))
    }

    pub(crate) fn put(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), StoreError> {
        let put = self.store.records.put(&mut self.txn, key, bytes);
        put.map_err(|error| self.refused(&error))
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<(), StoreError> {
        let deleted = self.store.records.delete(&mut self.txn, key);
        deleted.map(drop).map_err(|error| self.refused(&error))
    }

    fn with_prefix(&self, prefix: &[u8]) -> Result<RoPrefix<'_, Bytes, Bytes>, StoreError> {
        let found = self.store.records.prefix_iter(&self.txn, prefix);
        found.map_err(|error| self.refused(&error))
    }

    pub(crate) fn commit(mut self) -> Result<(), StoreError> {
        let before = self.store.last_change();
        let committed = self.txn.commit();
        if self.store.last_change() != before {
            self.guard.mark_changed();
        }
        committed.map_err(|error| errors::of_commit(&self.store.env, self.store.folder(), &error))
    }
}

pub(crate) fn key(kind: u8, name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + name.len());
    key.push(kind);
    key.extend_from_slice(name.as_bytes());
    key
}

/// The name of the lock with this key, if it is a valid name.
pub(crate) fn name_of(key: &[u8]) -> Option<LockName> {
    LockName::new(std::str::from_utf8(key.get(1..)?).ok()?).ok()
}
