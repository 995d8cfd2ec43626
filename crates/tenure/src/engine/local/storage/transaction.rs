//! One write transaction: brings the locks that an operation is about to the table, and puts
//! them back.

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

/// What keys begin with.
pub(crate) const LOCK: u8 = b'l';
pub(crate) const FORCED: u8 = b'x';
const META: &[u8] = b"m";

/// How many forced releases are remembered, as in the table.
const FORCED_KEPT: usize = 1000;

/// Which locks an operation is about.
pub(crate) enum Subject<'a> {
    Lock(&'a LockName),
    Locks(Vec<&'a LockName>),
    /// A lock as people look at it: with the record of its forced release, and without any waiter
    /// that is gone.
    Inspected(&'a LockName),
    /// The next locks of a list, as many as one slice has, besides those that nobody needs.
    Below(&'a mut Progress),
}

/// What an operation has done.
pub(crate) struct Done<T> {
    pub(crate) outcome: T,
    /// The wake-ups to deliver.
    pub(crate) effects: Effects,
    /// The locks among several for which nothing was done, each with the reason.
    pub(crate) unreadable: Vec<(LockName, StoreError)>,
}

pub(crate) struct Step<'s> {
    pub(crate) store: &'s Store,
    pub(crate) transaction: RwTxn<'s>,
    /// Locks in the table, with the bytes they were read from.
    pub(crate) brought: Vec<(LockName, Option<Vec<u8>>)>,
    /// Locks that could not be brought, because their records cannot be read. They stay as they are.
    pub(crate) unreadable: Vec<(LockName, StoreError)>,
    /// Clients that were asked for, and whether they are gone.
    asked: Vec<(ClientId, bool)>,
    // Last, so that the transaction has ended when the turn does.
    guard: StoreGuard<'s>,
}

impl<'s> Step<'s> {
    pub(crate) fn begin(store: &'s Store, patience: Patience) -> Result<Self, StoreError> {
        let guard = store.mutex.take(patience, || store.last_change())?;
        let transaction = store.env.write_txn();
        let transaction = transaction.map_err(|error| errors::of_map(store.folder(), &error))?;
        Ok(Self {
            store,
            transaction,
            brought: Vec::new(),
            unreadable: Vec::new(),
            asked: Vec::new(),
            guard,
        })
    }

    /// Performs an operation. If it is about one lock, that lock must be readable.
    pub(crate) fn perform<T>(
        mut self,
        mut subject: Subject<'_>,
        operation: impl FnOnce(&mut Table, Now, &mut Effects) -> T,
    ) -> Result<Done<T>, StoreError> {
        // Asked only now: whoever has the transaction has the present.
        let now = clock::both();
        let mut meta = self.read_meta()?;
        let mut table = Table::after(meta.last_fence);
        self.bring(&mut subject, &mut table, now)?;
        let mut effects = Effects::new();
        let outcome = operation(&mut table, now, &mut effects);
        liveness::begin_holds(&mut table, &mut effects);
        if !self.has_room(&mut table, now)? {
            return Err(self.full());
        }
        let has_new = self.put_back(&mut table)?;
        if !matches!(subject, Subject::Inspected(_)) {
            self.put_forced(&table)?;
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

    /// Writes what has changed. True if there is a lock now that was none before.
    fn put_back(&mut self, table: &mut Table) -> Result<bool, StoreError> {
        let mut has_new = false;
        for (name, before) in std::mem::take(&mut self.brought) {
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

    /// Keeps the record of a forced release, and forgets the oldest if there are too many.
    fn put_forced(&mut self, table: &Table) -> Result<(), StoreError> {
        let Some(forced) = table.last_forced() else {
            return Ok(());
        };
        self.put(&key(FORCED, forced.name.as_str()), &record::encode_forced(forced))?;
        let mut kept = Vec::new();
        for entry in self.below(&[FORCED])? {
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

    /// Brings a lock to what its clients are now.
    pub(crate) fn settle_lives(&mut self, lock: &mut LockState, now: Now, waiters: Waiters) {
        liveness::end_the_gone(lock, now.clock, waiters, |client_id| self.saw_end_of(client_id));
        liveness::prolong_the_inherited(lock, now.clock, |client_id| {
            !self.saw_end_of(client_id)
                && client_files::is_inherited(&self.store.clients, client_id)
        });
    }

    /// Whether a client is gone, which is asked for once in a step: what is gone stays so.
    pub(crate) fn saw_end_of(&mut self, client_id: ClientId) -> bool {
        if let Some((_, is_gone)) = self.asked.iter().find(|(asked, _)| *asked == client_id) {
            return *is_gone;
        }
        let is_gone = self.store.is_gone(client_id);
        self.asked.push((client_id, is_gone));
        is_gone
    }

    pub(crate) fn decode(&self, name: &LockName, bytes: &[u8]) -> Result<LockState, StoreError> {
        let unreadable = |why| errors::of_record(self.store.folder(), &format!("`{name}`"), why);
        record::decode_lock(bytes).map_err(unreadable)
    }

    pub(crate) fn refused(&self, error: &heed::Error) -> StoreError {
        errors::of_map(self.store.folder(), error)
    }
}

/// The plain access to records.
impl Step<'_> {
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

    /// How many records there are, of all kinds.
    pub(crate) fn count(&self) -> Result<u64, StoreError> {
        let count = self.store.records.len(&self.transaction);
        count.map_err(|error| self.refused(&error))
    }

    /// The next few keys that begin so, in order, after one of them.
    pub(crate) fn keys(
        &self,
        prefix: &[u8],
        after: &[u8],
        most: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let begin = if after < prefix { Bound::Included(prefix) } else { Bound::Excluded(after) };
        let found = self.store.records.range(&self.transaction, &(begin, Bound::Unbounded));
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
        let found = self.store.records.get(&self.transaction, key);
        Ok(found.map_err(|error| self.refused(&error))?.map(<[u8]>::to_vec))
    }

    pub(crate) fn put(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), StoreError> {
        let put = self.store.records.put(&mut self.transaction, key, bytes);
        put.map_err(|error| self.refused(&error))
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<(), StoreError> {
        let deleted = self.store.records.delete(&mut self.transaction, key);
        deleted.map(drop).map_err(|error| self.refused(&error))
    }

    fn below(&self, prefix: &[u8]) -> Result<RoPrefix<'_, Bytes, Bytes>, StoreError> {
        let found = self.store.records.prefix_iter(&self.transaction, prefix);
        found.map_err(|error| self.refused(&error))
    }

    pub(crate) fn commit(mut self) -> Result<(), StoreError> {
        let before = self.store.last_change();
        let committed = self.transaction.commit();
        if self.store.last_change() != before {
            self.guard.is_seen_by_its_change();
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

/// The name of the lock that has this key; none if nobody can ask for it.
pub(crate) fn name_of(key: &[u8]) -> Option<LockName> {
    LockName::new(std::str::from_utf8(key.get(1..)?).ok()?).ok()
}
