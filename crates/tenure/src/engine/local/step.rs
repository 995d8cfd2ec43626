//! One write transaction: brings the locks that an operation is about to the table, and puts
//! them back.

use heed::types::Bytes;
use heed::{RoPrefix, RwTxn};

use super::life;
use super::record::{self, Meta};
use super::store::Store;
use super::trouble;
use super::turn::{Patience, Turn};
use crate::clock;
use crate::core::lock::LockState;
use crate::core::moment::Now;
use crate::core::name::LockName;
use crate::core::table::{Effects, Route, Table};
use crate::error::Trouble;

/// What keys begin with.
const LOCK: u8 = b'l';
const FORCED: u8 = b'x';
const META: &[u8] = b"m";

/// How many forced releases are remembered, as in the table.
const FORCED_KEPT: usize = 1000;

/// Fewer records than this are never swept.
const SWEEP_FROM: u64 = 1024;

/// Which locks an operation is about.
pub(super) enum Subject<'a> {
    Lock(&'a LockName),
    Locks(Vec<&'a LockName>),
    /// A lock, and the record of its forced release.
    Record(&'a LockName),
    /// All locks whose names begin so.
    Below(&'a str),
}

pub(super) struct Step<'s> {
    pub(super) store: &'s Store,
    pub(super) transaction: RwTxn<'s>,
    /// Locks in the table, with the bytes they were read from.
    pub(super) brought: Vec<(LockName, Option<Vec<u8>>)>,
    /// Clients that were asked for, and whether they are gone.
    asked: Vec<(Route, bool)>,
    // Last, so that the transaction has ended when the turn does.
    _turn: Turn<'s>,
}

impl<'s> Step<'s> {
    pub(super) fn begin(store: &'s Store, patience: Patience) -> Result<Self, Trouble> {
        let turn = store.turns.take(patience)?;
        let transaction = store.env.write_txn();
        let transaction = transaction.map_err(|error| trouble::of_map(store.folder(), &error))?;
        Ok(Self { store, transaction, brought: Vec::new(), asked: Vec::new(), _turn: turn })
    }

    /// Performs an operation, and returns the wake-ups to deliver.
    pub(super) fn perform<T>(
        mut self,
        subject: Subject<'_>,
        operation: impl FnOnce(&mut Table, Now, &mut Effects) -> T,
    ) -> Result<(T, Effects), Trouble> {
        // Asked only now: whoever has the transaction has the present.
        let now = clock::both();
        let mut meta = self.read_meta()?;
        let mut table = Table::after(meta.last_fence);
        self.bring(&subject, &mut table, now)?;
        let mut effects = Effects::new();
        let outcome = operation(&mut table, now, &mut effects);
        life::begin_holds(&mut table, &mut effects);
        self.ensure_room(&mut table, now)?;
        let has_new = self.put_back(&mut table)?;
        if !matches!(subject, Subject::Record(_)) {
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
        self.commit()?;
        Ok((outcome, effects))
    }

    fn bring(&mut self, subject: &Subject<'_>, table: &mut Table, now: Now) -> Result<(), Trouble> {
        match subject {
            Subject::Lock(name) => self.bring_lock(name, table, now),
            Subject::Locks(names) => {
                names.iter().try_for_each(|name| self.bring_lock(name, table, now))
            }
            Subject::Record(name) => {
                if let Some(bytes) = self.get(&key(FORCED, name.as_str()))? {
                    let forced = record::decode_forced(&bytes);
                    table.put_forced(forced.map_err(|why| self.unreadable(name, why))?);
                }
                self.bring_lock(name, table, now)
            }
            Subject::Below(prefix) => {
                let names = self.names_below(prefix)?;
                names.iter().try_for_each(|name| self.bring_lock(name, table, now))
            }
        }
    }

    /// Brings a lock as it is now: without those whose client is gone.
    fn bring_lock(&mut self, name: &LockName, table: &mut Table, now: Now) -> Result<(), Trouble> {
        if table.lock_mut(name).is_some() {
            return Ok(());
        }
        let bytes = self.get(&key(LOCK, name.as_str()))?;
        if let Some(bytes) = &bytes {
            let mut lock = self.decode(name, bytes)?;
            life::end_the_gone(&mut lock, now.clock, |route| self.is_gone(route));
            table.put(name.clone(), lock);
        }
        self.brought.push((name.clone(), bytes));
        Ok(())
    }

    /// Writes what has changed. True if there is a lock now that was none before.
    fn put_back(&mut self, table: &mut Table) -> Result<bool, Trouble> {
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
    fn put_forced(&mut self, table: &Table) -> Result<(), Trouble> {
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

    /// Forgets locks whose holders went and that nobody has asked for since, each time the number
    /// of records has doubled.
    fn sweep(&mut self, meta: &mut Meta, now: Now) -> Result<(), Trouble> {
        let count = self.store.records.len(&self.transaction);
        if count.map_err(|error| self.refused(&error))? < meta.sweep_at.max(SWEEP_FROM) {
            return Ok(());
        }
        self.sweep_all(now)?;
        let left = self.store.records.len(&self.transaction);
        meta.sweep_at = left.map_err(|error| self.refused(&error))? * 2;
        Ok(())
    }

    pub(super) fn sweep_all(&mut self, now: Now) -> Result<(), Trouble> {
        for name in self.names_below("")? {
            let key = key(LOCK, name.as_str());
            // One that cannot be read is told to whoever asks for it.
            let Some(Ok(mut lock)) = self.get(&key)?.map(|bytes| self.decode(&name, &bytes)) else {
                continue;
            };
            life::end_the_gone(&mut lock, now.clock, |route| self.is_gone(route));
            lock.holders.expire(now.clock);
            if lock.is_idle() {
                self.delete(&key)?;
            }
        }
        Ok(())
    }

    fn is_gone(&mut self, route: Route) -> bool {
        if let Some((_, is_gone)) = self.asked.iter().find(|(asked, _)| *asked == route) {
            return *is_gone;
        }
        let is_gone = self.store.is_gone(route);
        self.asked.push((route, is_gone));
        is_gone
    }

    pub(super) fn names_below(&self, prefix: &str) -> Result<Vec<LockName>, Trouble> {
        let mut names = Vec::new();
        for entry in self.below(&key(LOCK, prefix))? {
            let (key, _) = entry.map_err(|error| self.refused(&error))?;
            let name = std::str::from_utf8(&key[1..]).ok().and_then(|it| LockName::new(it).ok());
            // Nobody can ask for a lock whose name is none.
            names.extend(name);
        }
        Ok(names)
    }

    fn decode(&self, name: &LockName, bytes: &[u8]) -> Result<LockState, Trouble> {
        record::decode_lock(bytes).map_err(|why| self.unreadable(name, why))
    }

    fn unreadable(&self, name: &LockName, why: &'static str) -> Trouble {
        trouble::of_record(self.store.folder(), &format!("`{name}`"), why)
    }

    pub(super) fn refused(&self, error: &heed::Error) -> Trouble {
        trouble::of_map(self.store.folder(), error)
    }
}

/// The plain access to records.
impl Step<'_> {
    pub(super) fn read_meta(&self) -> Result<Meta, Trouble> {
        let Some(bytes) = self.get(META)? else {
            return Ok(Meta::default());
        };
        Meta::decode(&bytes)
            .map_err(|why| trouble::of_record(self.store.folder(), "the store itself", why))
    }

    pub(super) fn write_meta(&mut self, meta: &Meta) -> Result<(), Trouble> {
        self.put(META, &meta.encode())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Trouble> {
        let found = self.store.records.get(&self.transaction, key);
        Ok(found.map_err(|error| self.refused(&error))?.map(<[u8]>::to_vec))
    }

    pub(super) fn put(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), Trouble> {
        let put = self.store.records.put(&mut self.transaction, key, bytes);
        put.map_err(|error| self.refused(&error))
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Trouble> {
        let deleted = self.store.records.delete(&mut self.transaction, key);
        deleted.map(drop).map_err(|error| self.refused(&error))
    }

    fn below(&self, prefix: &[u8]) -> Result<RoPrefix<'_, Bytes, Bytes>, Trouble> {
        let found = self.store.records.prefix_iter(&self.transaction, prefix);
        found.map_err(|error| self.refused(&error))
    }

    pub(super) fn commit(self) -> Result<(), Trouble> {
        let committed = self.transaction.commit();
        committed.map_err(|error| trouble::of_commit(&self.store.env, self.store.folder(), &error))
    }
}

pub(super) fn key(kind: u8, name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + name.len());
    key.push(kind);
    key.extend_from_slice(name.as_bytes());
    key
}
