//! The local engine: the processes of one machine share locks through a folder, with no server.
//!
//! The table's rules work on records in an LMDB file, which every process maps; each operation is
//! one write transaction. A client that ends, however it ends, is noticed at once, because the
//! kernel unlocks its file: what it held is free, and who waited behind it asks again.
//!
//! - [`folder`]: which folder, and that it is this user's alone; [`disk`] is what it lies on, [`home`]
//!   notices that it was removed. [`boot`] throws away what an earlier boot left, and [`blocks`] and
//!   [`map`] open LMDB's files.
//! - [`registry`]: one [`store`] per folder and process.
//! - [`turn`]: whose operation is next; [`backoff`] is one who waits for that.
//! - [`step`]: one operation in one transaction, on locks that [`bringing`] reads; [`room`] refuses what
//!   does not fit, and [`sweep`] forgets what nobody needs. [`listing`] is many short ones. [`record`] and
//!   [`bytes`] are what is stored.
//! - [`client`]: a client as others see it, and [`message`] what it is told. [`lives`] asks whether one
//!   lives, [`watch`] waits for its end, and [`life`] is what ends with it.
//! - [`arrival`]: a request for a lock, and [`spin`] whether to wait for it with open eyes.
//! - [`checkup`] and [`trouble`]: what is told to people.

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
mod liveness;
mod storage;
#[cfg(test)]
mod tests;
mod waiting;

use self::liveness::presence::Presence;
use self::storage::registry::Shared;
use self::storage::transaction::{Done, Subject};
use self::storage::{listing, map};
use self::waiting::spin::Spin;
use self::waiting::store_mutex::Patience;
use super::{
    AcquireRequest, Acquired, Answer, CancelRequest, Capabilities, Engine, Finding, ForceOutcome,
    ForceRequest, ListRequest, Listener, Reach, ReleaseOutcome, ReleaseRequest, Renewal, Renewed,
};
use crate::clock;
use crate::core::name::LockName;
use crate::core::table::ClientId;
use crate::error::{Error, Invalid, StoreError};
use crate::info::LockInfo;
use crate::owner::Owner;

/// The lease of a hand-over until it is confirmed: how long a waiter that is frozen delays the
/// queue. One that is dead does not.
const CLAIM: Duration = Duration::from_secs(3);

/// How long those who never renew may take to notice that the folder was moved away.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A client of a store that lies in a folder of this machine.
///
/// The folder belongs to one user, and is made if it is missing. It must not lie on a network
/// file system, nor on one that a program makes (FUSE). When the engine is dropped or its process ends, what it holds is free at once,
/// except what was detached.
pub struct LocalEngine {
    // First, so that the client is gone before the store is closed.
    presence: Presence,
    store: Shared,
    spin: Spin,
    /// When an acquire last looked at the path of the folder, in microseconds.
    looked: AtomicU64,
}

impl LocalEngine {
    /// Opens the store in this folder. It waits for the operations of others: for a second at most if
    /// nothing changes there meanwhile, and for ten if others get on.
    ///
    /// # Errors
    /// When the path is not absolute, the folder cannot be made, is no folder, belongs to another
    /// user or is open to others, its files cannot be used, or there is no turn in time. The error then
    /// names the process that has it.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_sized(folder.as_ref(), map::BYTES)
    }

    fn open_sized(folder: &Path, bytes: usize) -> Result<Self, Error> {
        let folder = folder::prepare(folder)?;
        let connect = |trouble| Error::Connect { trouble };
        let store = Shared::open(&folder, bytes).map_err(connect)?;
        let presence = store.join().map_err(connect)?;
        Ok(Self { presence, store, spin: Spin::default(), looked: AtomicU64::new(0) })
    }

    /// Opens the store that a URL names: `local:///folder`, or `local:` for the usual folder.
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

    /// Refuses what relies on others seeing the same: whoever takes a lock, or goes on holding one,
    /// must learn that another store may grant the same.
    fn ensure_there(&self) -> Result<(), StoreError> {
        let is_there = self.presence.is_visible() && self.store.store_folder.has_data();
        if is_there { Ok(()) } else { Err(self.store.store_folder.missing()) }
    }

    /// The same for an acquire, which is to be quick: a removal is seen by a call that needs no
    /// path, and the path, which shows that the folder was moved, is looked at now and then.
    fn ensure_there_quickly(&self) -> Result<(), StoreError> {
        let now = clock::now().as_micros();
        let looked = Duration::from_micros(now - self.looked.load(Ordering::Relaxed).min(now));
        if looked < LOOK_EVERY && self.presence.is_linked() {
            return Ok(());
        }
        self.looked.store(now, Ordering::Relaxed);
        self.ensure_there()
    }

    fn client_id(&self) -> ClientId {
        self.presence.receiver.client_id
    }
}

impl Engine for LocalEngine {
    fn capabilities(&self) -> Capabilities {
        Capabilities { engine: "local", reach: Reach::Machine, claim: Some(CLAIM) }
    }

    fn place(&self) -> String {
        format!("local at {}", self.store.folder().display())
    }

    fn acquire(&self, request: AcquireRequest) -> Answer<Acquired> {
        Answer::now(self.enter(&request))
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Answer<Vec<Result<Renewed, StoreError>>> {
        if let Err(trouble) = self.ensure_there() {
            return Answer::now(Err(trouble));
        }
        let names = renewals.iter().map(|renewal| &renewal.name).collect();
        let subject = Subject::Locks(names);
        let done = self.store.perform_on_each(Patience::Short, subject, |table, now, effects| {
            renewals.iter().map(|it| table.renew(it, now, effects)).collect::<Vec<_>>()
        });
        Answer::now(done.map(|Done { outcome, unreadable, .. }| {
            let unreadable: HashMap<_, _> = unreadable.into_iter().collect();
            let outcomes = renewals.iter().zip(outcome);
            let trouble = |it: &Renewal| unreadable.get(&it.name).cloned();
            outcomes.map(|(renewal, it)| trouble(renewal).map_or(Ok(it), Err)).collect()
        }))
    }

    fn release(&self, request: ReleaseRequest) -> Answer<ReleaseOutcome> {
        // It goes on in the background if it is refused, and a guard may be dropped anywhere.
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

    fn detach(&self, name: &LockName, owner: Owner) -> Result<(), StoreError> {
        self.store.perform(Patience::Long, Subject::Lock(name), |table, _, _| {
            if let Some(lock) = table.lock_mut(name) {
                liveness::keep(lock, owner);
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
            LockInfo { trouble, ..info }
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
        self.store.leave(self.client_id());
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
