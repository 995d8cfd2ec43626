//! The local engine: the processes of one machine share locks through a folder, without a server.
//!
//! The rules of the table work on records in an LMDB file that every process maps; each operation is one write
//! transaction. The kernel unlocks a client's file when its process ends, however it ends, so that a dead client is
//! detected at once: its locks are free, and the waiters behind it retry.
//!
//! - [`acquire`]: a request for a lock: granted, or queued, spinning or parked.
//! - [`folder`]: which folder, and whether it is safe and still the same one.
//! - [`storage`]: records, transactions, quota.
//! - [`liveness`]: which clients are alive, and what ends with a dead one.
//! - [`waiting`]: the store's mutex, spinning, and wake-ups between processes.
//! - [`checkup`] and [`errors`]: findings and error messages.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

mod acquire;
mod checkup;
mod errors;
mod folder;
#[cfg(fuzzing)]
pub(super) mod fuzzing;
mod liveness;
mod storage;
#[cfg(test)]
mod tests;
mod waiting;

use self::liveness::presence::Presence;
use self::storage::registry::StoreHandle;
use self::storage::transaction::{Done, Subject};
use self::storage::{listing, map};
use self::waiting::spin::Spin;
use self::waiting::store_mutex::Patience;
use super::{
    AcquireRequest, Acquired, Answer, CancelRequest, Capabilities, Engine, Features, Finding,
    ForceOutcome, ForceRequest, ListRequest, Listener, Reach, ReleaseOutcome, ReleaseRequest,
    Renewal, Renewed,
};
use crate::clock;
use crate::core::name::LockName;
use crate::core::table::ClientId;
use crate::error::{Error, Invalid, StoreError};
use crate::info::LockInfo;
use crate::owner::Entry;

/// The lease of a hand-over until it is confirmed: how long a stopped waiter delays the queue. A dead one does not.
const CLAIM: Duration = Duration::from_secs(3);

/// How long a client that never renews may take to detect that the folder was moved.
const CHECK_PATH_EVERY: Duration = Duration::from_millis(100);

/// A client of a store in a folder of this machine.
///
/// The folder belongs to one user, and is created if it does not exist. It must not be on a network file system, nor
/// on one that a program provides (FUSE). When the engine is dropped or its process ends, its locks are free at once,
/// except those that were detached.
pub struct LocalEngine {
    // First, so that the client ends before the store is closed.
    presence: Presence,
    store: StoreHandle,
    spin: Spin,
    /// When an acquire last checked the path of the folder, in microseconds.
    path_checked_at: AtomicU64,
}

impl LocalEngine {
    /// Opens the store in this folder. It waits for the store's mutex: up to one second while other processes make no
    /// progress, and up to ten while they do.
    ///
    /// # Errors
    /// When the path is not absolute, the folder cannot be created, is not a folder, belongs to another user or is
    /// accessible to other users, its files cannot be used, or the store's mutex is not free in time. The error then
    /// names the process that holds it.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_sized(folder.as_ref(), map::BYTES)
    }

    fn open_sized(folder: &Path, bytes: usize) -> Result<Self, Error> {
        let folder = folder::prepare(folder)?;
        let connect = |error| Error::Connect { error };
        let store = StoreHandle::open(&folder, bytes).map_err(connect)?;
        let presence = store.register().map_err(connect)?;
        Ok(Self { presence, store, spin: Spin::default(), path_checked_at: AtomicU64::new(0) })
    }

    /// Opens the store that a URL names: `local:///folder`, or `local:` for the default folder.
    pub(crate) fn connect(url: &str) -> Result<Self, Error> {
        match url.strip_prefix("local:") {
            Some("") => Self::open(folder::default_folder()?),
            Some(rest) if rest.starts_with("///") => Self::open(&rest[2..]),
            _ => {
                let sentence = "a local store is `local:`, or `local:///folder` with three slashes";
                Err(Invalid::new(sentence).into())
            }
        }
    }

    /// Refuses an acquire or a renewal when other clients may use another store, which may grant the same locks (I1).
    fn ensure_in_place(&self) -> Result<(), StoreError> {
        let is_in_place = self.presence.is_visible() && self.store.store_folder.has_data_file();
        if is_in_place { Ok(()) } else { Err(self.store.store_folder.missing_error()) }
    }

    /// The same, cheap enough for every acquire: a removal is detected by a system call without a path; the path
    /// itself, which shows a move, is checked only every 100 ms.
    fn ensure_in_place_quickly(&self) -> Result<(), StoreError> {
        let now = clock::now().as_micros();
        let checked_at = self.path_checked_at.load(Ordering::Relaxed);
        let elapsed = Duration::from_micros(now - checked_at.min(now));
        if elapsed < CHECK_PATH_EVERY && self.presence.is_linked() {
            return Ok(());
        }
        self.path_checked_at.store(now, Ordering::Relaxed);
        self.ensure_in_place()
    }

    fn client_id(&self) -> ClientId {
        self.presence.receiver.client_id
    }
}

impl Engine for LocalEngine {
    fn capabilities(&self) -> Capabilities {
        let (reach, claim) = (Reach::Machine, Some(CLAIM));
        let features = Features::ALL;
        Capabilities { engine: "local", reach, claim, has_replicas: false, features }
    }

    fn place(&self) -> String {
        format!("local at {}", self.store.folder().display())
    }

    fn acquire(&self, request: AcquireRequest) -> Answer<Acquired> {
        Answer::now(self.acquire_or_queue(&request))
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Answer<Vec<Result<Renewed, StoreError>>> {
        if let Err(error) = self.ensure_in_place() {
            return Answer::now(Err(error));
        }
        let names = renewals.iter().map(|renewal| &renewal.name).collect();
        let subject = Subject::Locks(names);
        let done = self.store.perform_on_each(Patience::Short, subject, |table, now, effects| {
            renewals.iter().map(|it| table.renew(it, now, effects)).collect::<Vec<_>>()
        });
        Answer::now(done.map(|Done { outcome, unreadable, .. }| {
            let unreadable: HashMap<_, _> = unreadable.into_iter().collect();
            let outcomes = renewals.iter().zip(outcome);
            let error = |it: &Renewal| unreadable.get(&it.name).cloned();
            outcomes.map(|(renewal, it)| error(renewal).map_or(Ok(it), Err)).collect()
        }))
    }

    fn release(&self, request: ReleaseRequest) -> Answer<ReleaseOutcome> {
        // Short: a refused release is retried in the background, and a guard may be dropped on any thread.
        Answer::now(self.store.perform(
            Patience::Short,
            Subject::Lock(&request.name),
            |table, now, effects| table.release(&request, now, effects),
        ))
    }

    fn cancel(&self, request: CancelRequest) -> Answer<()> {
        Answer::now(self.store.perform(
            Patience::Short,
            Subject::Lock(&request.name),
            |table, now, effects| {
                table.cancel(&request, now, effects);
            },
        ))
    }

    fn detach(&self, name: &LockName, entry: Entry) -> Result<(), StoreError> {
        self.store.perform(Patience::Long, Subject::Lock(name), |table, _, _| {
            if let Some(lock) = table.lock_mut(name) {
                liveness::detach(lock, entry.owner);
            }
        })
    }

    fn share_with_children(&self) -> Result<bool, StoreError> {
        let folder = self.store.folder();
        self.presence.share_with_children().map_err(|error| errors::of_files(folder, &error))?;
        Ok(true)
    }

    fn inspect(&self, name: LockName) -> Answer<LockInfo> {
        let subject = Subject::Inspected(&name);
        let done = self.store.perform_on_each(Patience::Long, subject, |table, now, effects| {
            table.inspect(&name, now, effects)
        });
        Answer::now(done.map(|Done { outcome: info, unreadable, .. }| {
            let trouble = unreadable.first().map(|(_, trouble)| trouble.to_string());
            LockInfo { error: trouble, ..info }
        }))
    }

    fn list(&self, request: ListRequest) -> Answer<Vec<LockInfo>> {
        Answer::now(listing::list(&self.store, request))
    }

    fn force_release(&self, request: ForceRequest) -> Answer<ForceOutcome> {
        Answer::now(self.store.perform(
            Patience::Long,
            Subject::Lock(&request.name),
            |table, now, effects| table.force_release(&request, now, effects),
        ))
    }

    fn checkup(&self) -> Answer<Vec<Finding>> {
        Answer::now(checkup::checkup(&self.store))
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        self.presence.receiver.listen(listener);
    }
}

impl Drop for LocalEngine {
    fn drop(&mut self) {
        self.store.unregister(self.client_id());
    }
}

impl fmt::Debug for LocalEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalEngine")
            .field("folder", &self.store.folder())
            .field("client", &self.client_id())
            .finish_non_exhaustive()
    }
}
