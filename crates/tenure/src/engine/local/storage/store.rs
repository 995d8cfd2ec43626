//! The open store of one folder in this process.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use heed::Env;

use super::map::{self, Records};
use super::quota::SweepThrottle;
use super::transaction::{Done, Subject, Transaction};
use crate::core::moment::Now;
use crate::core::table::{ClientId, Effects, Table};
use crate::engine::local::errors;
use crate::engine::local::folder::boot;
use crate::engine::local::folder::preallocate;
use crate::engine::local::folder::store_folder::StoreFolder;
use crate::engine::local::folder::{CLIENTS, DATA};
use crate::engine::local::liveness::client_files;
use crate::engine::local::liveness::lock_files::LockFiles;
use crate::engine::local::liveness::presence::Presence;
use crate::engine::local::liveness::{MAX_CLIENT, client_of};
use crate::engine::local::waiting::receiver::{self, Receiver};
use crate::engine::local::waiting::store_mutex::{Patience, StoreMutex};
use crate::engine::{CancelRequest, Wakeup};
use crate::error::StoreError;
use crate::sync::lock;

pub(crate) struct Store {
    folder: PathBuf,
    pub(crate) clients: PathBuf,
    pub(crate) env: Env,
    pub(crate) records: Records,
    /// The clients of this process.
    own_clients: Mutex<HashMap<ClientId, Arc<Receiver>>>,
    /// The socket that sends wake-ups.
    sender: UnixDatagram,
    process: u32,
    lock_files: LockFiles,
    pub(crate) mutex: StoreMutex,
    pub(crate) store_folder: StoreFolder,
    pub(crate) sweep_throttle: SweepThrottle,
}

impl Store {
    pub(crate) fn open(process: u32, folder: &Path, bytes: usize) -> Result<Self, StoreError> {
        let of_files = |error| errors::of_files(folder, &error);
        let mutex = StoreMutex::open(folder).map_err(of_files)?;
        // Before the map is open, the modification time of its file shows progress.
        let data = folder.join(DATA);
        let guard = mutex.acquire(Patience::Opening, || written_at(&data))?;
        boot::discard_earlier_boot(folder).map_err(of_files)?;
        preallocate::reserve(&folder.join("lock.mdb")).map_err(of_files)?;
        let (env, records) =
            map::open(folder, bytes).map_err(|error| errors::of_map(folder, &error))?;
        let store_folder = StoreFolder::open(folder).map_err(of_files)?;
        drop(guard);
        let sender = UnixDatagram::unbound().and_then(|sender| {
            sender.set_nonblocking(true)?;
            Ok(sender)
        });
        let store = Self {
            folder: folder.to_owned(),
            clients: folder.join(CLIENTS),
            env,
            records,
            own_clients: Mutex::default(),
            sender: sender.map_err(of_files)?,
            store_folder,
            sweep_throttle: SweepThrottle::default(),
            process,
            lock_files: LockFiles::default(),
            mutex,
        };
        Ok(store)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn is_of_parent(&self) -> bool {
        std::process::id() != self.process
    }

    /// Refuses this store to a forked child, and when its folder was moved.
    pub(crate) fn ensure_shared(&self, process: u32) -> Result<(), StoreError> {
        if process != self.process {
            return Err(self.of_parent());
        }
        self.store_folder.ensure_in_place()
    }

    /// The child has the parent's map without its locks, and opening a second one would drop the locks of the first.
    fn of_parent(&self) -> StoreError {
        StoreError::refused(format!(
            "this process was forked from one that has the store in `{}` open: connect after the \
             fork and not before, or start the child with `exec`",
            self.folder.display()
        ))
    }

    /// Registers a new client of this store.
    pub(crate) fn register(&self) -> Result<Presence, StoreError> {
        let mut transaction = Transaction::begin(self, Patience::Opening)?;
        let mut meta = transaction.read_meta()?;
        let of_files = |error| errors::of_files(&self.folder, &error);
        client_files::remove_stale(&self.clients).map_err(of_files)?;
        loop {
            meta.last_client_id = meta.last_client_id % MAX_CLIENT + 1;
            if client_files::is_stale(&self.clients, meta.last_client_id) {
                break;
            }
        }
        let presence = Presence::begin(&self.clients, meta.last_client_id).map_err(of_files)?;
        transaction.write_meta(&meta)?;
        transaction.commit()?;
        lock(&self.own_clients).insert(presence.receiver.client_id, presence.receiver.clone());
        Ok(presence)
    }

    pub(crate) fn unregister(&self, client_id: ClientId) {
        lock(&self.own_clients).remove(&client_id);
    }

    /// Whether a client is one of this process.
    pub(crate) fn is_own_client(&self, client_id: ClientId) -> bool {
        lock(&self.own_clients).contains_key(&client_id)
    }

    /// The id of the last transaction that changed something, in any process.
    pub(crate) fn last_change(&self) -> usize {
        self.env.info().last_txn_id
    }

    /// Whether a client has ended.
    pub(crate) fn is_dead(&self, client_id: ClientId) -> bool {
        !self.is_own_client(client_id)
            && self.lock_files.has_ended(&self.clients, client_id)
            // If the whole folder was removed, a missing file proves nothing.
            && self.store_folder.is_in_place()
    }

    /// Performs one operation in one transaction, then delivers its wake-ups.
    pub(crate) fn perform<T>(
        &self,
        patience: Patience,
        subject: Subject<'_>,
        operation: impl FnOnce(&mut Table, Now, &mut Effects) -> T,
    ) -> Result<T, StoreError> {
        Ok(self.perform_on_each(patience, subject, operation)?.outcome)
    }

    /// The same on several locks: unreadable ones are returned, and do not affect the others.
    pub(crate) fn perform_on_each<T>(
        &self,
        patience: Patience,
        subject: Subject<'_>,
        operation: impl FnOnce(&mut Table, Now, &mut Effects) -> T,
    ) -> Result<Done<T>, StoreError> {
        if self.is_of_parent() {
            return Err(self.of_parent());
        }
        let mut done = Transaction::begin(self, patience)?.perform(subject, operation)?;
        if !done.effects.is_empty() {
            self.deliver(std::mem::take(&mut done.effects));
        }
        Ok(done)
    }

    /// Delivers the wake-ups of an operation. A grant to a dead client is cancelled, and passes to the next waiter.
    fn deliver(&self, effects: Effects) {
        let mut pending = VecDeque::from(effects);
        while let Some((client_id, wakeup)) = pending.pop_front() {
            if self.wake(client_of(client_id), &wakeup) {
                continue;
            }
            let Wakeup::Granted { name, entry, .. } = wakeup else {
                continue;
            };
            let request = CancelRequest { name: name.clone(), entry };
            let cancelled = Transaction::begin(self, Patience::Short).and_then(|transaction| {
                transaction.perform(Subject::Lock(&name), |table, now, effects| {
                    table.cancel(&request, now, effects);
                })
            });
            // If the cancel fails, the claim lease ends the grant.
            pending.extend(cancelled.map(|done| done.effects).unwrap_or_default());
        }
    }

    /// Wakes a client; false if it has ended.
    fn wake(&self, client_id: ClientId, wakeup: &Wakeup) -> bool {
        let receiver = lock(&self.own_clients).get(&client_id).cloned();
        match receiver {
            Some(receiver) => receiver.wake(wakeup.clone()),
            None => receiver::send(&self.sender, &self.clients, client_id, wakeup),
        }
    }
}

/// The modification time of a file, as a number that changes with every write.
fn written_at(file: &Path) -> usize {
    let found = fs::metadata(file);
    found.map_or(0, |it| {
        (it.mtime() as usize).wrapping_mul(1_000_000_000) + it.mtime_nsec() as usize
    })
}
