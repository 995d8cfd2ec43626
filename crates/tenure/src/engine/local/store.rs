//! The store of one folder, as this process has it open.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use heed::Env;

use super::blocks;
use super::boot;
use super::client::{self, Ear, Presence};
use super::errors;
use super::folder::{CLIENTS, DATA};
use super::liveness::{MAX_CLIENT, client_of};
use super::lock_files::LockFiles;
use super::map::{self, Records};
use super::quota::Search;
use super::step::{Done, Step, Subject};
use super::store_folder::StoreFolder;
use super::store_mutex::{Patience, StoreMutex};
use crate::core::moment::Now;
use crate::core::table::{ClientId, Effects, Table};
use crate::engine::{CancelRequest, Wakeup};
use crate::error::StoreError;
use crate::sync::lock;

pub(super) struct Store {
    folder: PathBuf,
    pub(super) clients: PathBuf,
    pub(super) env: Env,
    pub(super) records: Records,
    /// The clients of this process.
    here: Mutex<HashMap<ClientId, Arc<Ear>>>,
    /// What wake-ups are sent from.
    sender: UnixDatagram,
    process: u32,
    lock_files: LockFiles,
    pub(super) mutex: StoreMutex,
    /// Where the clients are to be found.
    pub(super) store_folder: StoreFolder,
    pub(super) search: Search,
}

impl Store {
    pub(super) fn open(process: u32, folder: &Path, bytes: usize) -> Result<Self, StoreError> {
        let of_files = |error| errors::of_files(folder, &error);
        let mutex = StoreMutex::open(folder).map_err(of_files)?;
        // Before the map is open, changes are seen by the time of the last write to its file.
        let data = folder.join(DATA);
        let guard = mutex.take(Patience::Opening, || written_at(&data))?;
        boot::begin(folder).map_err(of_files)?;
        blocks::reserve(&folder.join("lock.mdb")).map_err(of_files)?;
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
            here: Mutex::default(),
            sender: sender.map_err(of_files)?,
            store_folder,
            search: Search::default(),
            process,
            lock_files: LockFiles::default(),
            mutex,
        };
        Ok(store)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn is_of_parent(&self) -> bool {
        std::process::id() != self.process
    }

    /// Refuses a share of this store to a forked child, and to whoever finds it elsewhere.
    pub(super) fn ensure_shared(&self, process: u32) -> Result<(), StoreError> {
        if process != self.process {
            return Err(self.of_parent());
        }
        self.store_folder.ensure_there()
    }

    /// The child has the parent's map, with none of its rights, and a second map would end those of
    /// the first.
    fn of_parent(&self) -> StoreError {
        StoreError::refused(format!(
            "this process was forked from one that has the store in `{}` open: connect after the \
             fork and not before, or start the child with `exec`",
            self.folder.display()
        ))
    }

    /// A new client of this store.
    pub(super) fn join(&self) -> Result<Presence, StoreError> {
        let mut step = Step::begin(self, Patience::Opening)?;
        let mut meta = step.read_meta()?;
        let of_files = |error| errors::of_files(&self.folder, &error);
        client::remove_stale(&self.clients).map_err(of_files)?;
        loop {
            meta.last_client_id = meta.last_client_id % MAX_CLIENT + 1;
            if client::is_stale(&self.clients, meta.last_client_id) {
                break;
            }
        }
        let presence = Presence::begin(&self.clients, meta.last_client_id).map_err(of_files)?;
        step.write_meta(&meta)?;
        step.commit()?;
        lock(&self.here).insert(presence.ear.client_id, presence.ear.clone());
        Ok(presence)
    }

    pub(super) fn leave(&self, client_id: ClientId) {
        lock(&self.here).remove(&client_id);
    }

    /// Whether a client is one of this process.
    pub(super) fn is_here(&self, client_id: ClientId) -> bool {
        lock(&self.here).contains_key(&client_id)
    }

    /// A number that is another one after every change, of whatever lock.
    pub(super) fn last_change(&self) -> usize {
        self.env.info().last_txn_id
    }

    /// Whether a client has ended.
    pub(super) fn is_gone(&self, client_id: ClientId) -> bool {
        !self.is_here(client_id)
            && self.lock_files.has_ended(&self.clients, client_id)
            // Gone with the whole folder, a file proves nothing.
            && self.store_folder.is_there()
    }

    /// Performs one operation in one transaction, then delivers the wake-ups that follow.
    pub(super) fn perform<T>(
        &self,
        patience: Patience,
        subject: Subject<'_>,
        operation: impl FnOnce(&mut Table, Now, &mut Effects) -> T,
    ) -> Result<T, StoreError> {
        Ok(self.perform_on_each(patience, subject, operation)?.outcome)
    }

    /// The same on several locks: those that cannot be read are told, and leave the others alone.
    pub(super) fn perform_on_each<T>(
        &self,
        patience: Patience,
        subject: Subject<'_>,
        operation: impl FnOnce(&mut Table, Now, &mut Effects) -> T,
    ) -> Result<Done<T>, StoreError> {
        if self.is_of_parent() {
            return Err(self.of_parent());
        }
        let mut done = Step::begin(self, patience)?.perform(subject, operation)?;
        if !done.effects.is_empty() {
            self.deliver(std::mem::take(&mut done.effects));
        }
        Ok(done)
    }

    /// A grant to a client that is gone passes to the next waiter.
    fn deliver(&self, effects: Effects) {
        let mut pending = VecDeque::from(effects);
        while let Some((client_id, wakeup)) = pending.pop_front() {
            if self.tell(client_of(client_id), &wakeup) {
                continue;
            }
            let Wakeup::Granted { name, entry, .. } = wakeup else {
                continue;
            };
            let request = CancelRequest { name: name.clone(), entry };
            let cancelled = Step::begin(self, Patience::Short).and_then(|step| {
                step.perform(Subject::Lock(&name), |table, now, effects| {
                    table.cancel(&request, now, effects);
                })
            });
            // Not cancelled, the claim lease ends it.
            pending.extend(cancelled.map(|done| done.effects).unwrap_or_default());
        }
    }

    /// False if that client is gone.
    fn tell(&self, client_id: ClientId, wakeup: &Wakeup) -> bool {
        let here = lock(&self.here).get(&client_id).cloned();
        match here {
            Some(ear) => ear.wake(wakeup.clone()),
            None => client::send(&self.sender, &self.clients, client_id, wakeup),
        }
    }
}

/// When a file was last written, as a number that is another one after the next time.
fn written_at(file: &Path) -> usize {
    let found = fs::metadata(file);
    found.map_or(0, |it| {
        (it.mtime() as usize).wrapping_mul(1_000_000_000) + it.mtime_nsec() as usize
    })
}
