//! The local engine: the processes of one machine share locks through a folder, with no server.
//!
//! The table's rules work on records in an LMDB file, which every process maps; each operation is
//! one write transaction. A client that ends, however it ends, is noticed at once, because the
//! kernel unlocks its file: what it held is free, and who waited behind it asks again.

use std::fmt;
use std::path::Path;
use std::sync::Weak;
use std::time::Duration;

mod arrival;
mod blocks;
mod boot;
mod bytes;
mod checkup;
mod client;
mod disk;
mod folder;
mod gaze;
mod home;
mod life;
mod lives;
mod map;
mod message;
mod record;
mod registry;
mod room;
mod step;
mod store;
#[cfg(test)]
mod tests;
mod trouble;
mod turn;
mod watch;

use self::client::Presence;
use self::gaze::Gaze;
use self::registry::Shared;
use self::step::Subject;
use self::turn::Patience;
use super::{
    AcquireRequest, Acquired, Answer, CancelRequest, Capabilities, Engine, Finding, ForceOutcome,
    ForceRequest, ListRequest, Listener, Reach, ReleaseOutcome, ReleaseRequest, Renewal, Renewed,
};
use crate::core::name::LockName;
use crate::core::table::Route;
use crate::error::{Error, Invalid, Trouble};
use crate::info::LockInfo;
use crate::owner::Owner;

/// The lease of a hand-over until it is confirmed: how long a waiter that is frozen delays the
/// queue. One that is dead does not.
const CLAIM: Duration = Duration::from_secs(3);

/// A client of a store that lies in a folder of this machine.
///
/// The folder belongs to one user, and is made if it is missing. It must not lie on a network
/// file system. When the engine is dropped or its process ends, what it holds is free at once,
/// except what was detached.
pub struct LocalEngine {
    // First, so that the client is gone before the store is closed.
    presence: Presence,
    store: Shared,
    gaze: Gaze,
}

impl LocalEngine {
    /// Opens the store in this folder.
    ///
    /// # Errors
    /// When the path is not absolute, the folder cannot be made, is no folder, belongs to another
    /// user or is open to others, or its files cannot be used.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_sized(folder.as_ref(), map::BYTES)
    }

    fn open_sized(folder: &Path, bytes: usize) -> Result<Self, Error> {
        let folder = folder::prepare(folder)?;
        let connect = |trouble| Error::Connect { trouble };
        let store = Shared::open(&folder, bytes).map_err(connect)?;
        let presence = store.join().map_err(connect)?;
        Ok(Self { presence, store, gaze: Gaze::default() })
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

    fn route(&self) -> Route {
        self.presence.ear.route
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

    fn renew(&self, renewals: Vec<Renewal>) -> Answer<Vec<Renewed>> {
        // Whoever goes on holding must learn of it: another store may grant the same lock.
        if let Err(trouble) = self.store.home.ensure_there() {
            return Answer::now(Err(trouble));
        }
        let names = renewals.iter().map(|renewal| &renewal.name).collect();
        Answer::now(self.store.perform(
            Patience::Short,
            Subject::Locks(names),
            |table, now, effects| {
                renewals.iter().map(|renewal| table.renew(renewal, now, effects)).collect()
            },
        ))
    }

    fn release(&self, request: ReleaseRequest) -> Answer<ReleaseOutcome> {
        Answer::now(self.store.perform(
            Patience::Long,
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

    fn detach(&self, name: &LockName, owner: Owner) -> Result<(), Trouble> {
        self.store.perform(Patience::Long, Subject::Lock(name), |table, _, _| {
            if let Some(lock) = table.lock_mut(name) {
                life::keep(lock, owner);
            }
        })
    }

    fn bequeath(&self) -> Result<(), Trouble> {
        let folder = self.store.folder();
        self.presence.bequeath().map_err(|error| trouble::of_files(folder, &error))
    }

    fn inspect(&self, name: LockName) -> Answer<LockInfo> {
        Answer::now(self.store.perform(
            Patience::Long,
            Subject::Record(&name),
            |table, now, effects| table.inspect(&name, now, effects),
        ))
    }

    fn list(&self, request: ListRequest) -> Answer<Vec<LockInfo>> {
        let subject = Subject::Below(&request.prefix);
        Answer::now(self.store.perform(Patience::Long, subject, |table, now, effects| {
            table.list(&request, now, effects)
        }))
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
        self.presence.ear.listen(listener);
    }
}

impl Drop for LocalEngine {
    fn drop(&mut self) {
        self.store.leave(self.route());
    }
}

impl fmt::Debug for LocalEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalEngine")
            .field("folder", &self.store.folder())
            .field("client", &self.route())
            .finish_non_exhaustive()
    }
}
