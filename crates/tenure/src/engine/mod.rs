//! The contract between the driver and the store, which every engine fulfils.
//!
//! An engine performs single operations. Waiting, retrying and renewing are the driver's, once for all
//! engines; one conformance suite tests all of them. An engine is one client's connection to a store;
//! several clients share the store.
//!
//! # The rules
//!
//! 1. **Each operation is atomic**, and takes effect at one moment of the store's clock, between the
//!    call and the answer.
//! 2. **Leases end by the store's clock.** A holder whose lease has ended holds nothing, whether or not
//!    the store has removed it yet. Every operation first settles its lock; only a release may come late,
//!    as long as no other holder has come in between.
//! 3. **Exclusion** (I1): the permits of holders with a valid lease never exceed the limit.
//! 4. **Identity** (I3): renewing and releasing work for the owner alone; renewing never creates
//!    a hold. Another kind or limit on a name in use is a [`Mismatch`](Acquired::Mismatch), and changes
//!    nothing.
//! 5. **Idempotent** (I5): the same request sent twice leaves the same state and gets the same
//!    answer, except that leases count from the later one. An acquire for an entry that already
//!    holds returns its grant; for an entry that already waits, its standing.
//! 6. **A lease never becomes shorter** by renewal or re-entry, only by release.
//! 7. **Fences** (I4) grow with every grant, across all losses of data.
//! 8. **The queue** (I10), if the engine [has one](Features::has_queue), is FIFO. A release hands the lock over to the first waiter in the same step, and
//!    wakes only that waiter. A request that does not wait is not served before the waiters. A waiter that
//!    has not asked again within its heartbeat is skipped, and so is a waiter whose client is known to have
//!    ended.
//!    Without a queue, a release is announced to all clients that wait ([`Wakeup::Freed`]), and the first request that
//!    arrives is granted; what else [an engine may lack](Features) it declares.
//! 9. **A hand-over** is valid for the claim lease; the first renewal, or asking again, makes it
//!    the full lease.
//! 10. **Done, refused or unknown** (I6): an error says whether the operation may have taken
//!     effect. Every answer or error arrives within a time that the engine bounds.
//! 11. **Wake-ups are hints.** They may be lost, late or repeated; asking again must return the
//!     same. After a gap an engine sends [`Wakeup::Missed`], or [`Wakeup::MissedIn`],
//!     and [`Wakeup::Returned`] when requests can be sent again.
//! 12. **No residue**: a lock without holders and waiters leaves nothing in the store, except what fences
//!     need.
//! 13. **In order**: acquires, releases and cancels of one client under one name take effect in the
//!     order of its calls, if each had returned before the next was made, and none failed. They do so
//!     whether or not their answers are polled.
//! 14. **Proposals**: a store that is one node of a quorum grants on the spot only a proposed fence that is larger
//!     than the last one of the lock, orders its waiters by (proposal, owner), and hands over with a fence no smaller
//!     than the proposal. A repair needs a fence no smaller than the last one, and precedes the waiters.

use std::sync::Weak;
use std::time::Duration;

mod answer;
mod checkup;
mod features;
mod health;
#[cfg(feature = "redis")]
mod link_monitor;
#[cfg(all(feature = "local", target_os = "linux"))]
mod local;
pub(crate) mod memory;
#[cfg(feature = "redis")]
mod quorum;
#[cfg(feature = "redis")]
mod redis;
mod request;
mod topology;

/// Entry points for the fuzz targets.
#[cfg(fuzzing)]
pub(crate) mod fuzzing {
    pub(crate) use super::local::fuzzing::record;
    pub(crate) use super::redis::fuzzing::{resp, url};
}

#[cfg(all(feature = "local", target_os = "linux"))]
pub use self::local::LocalEngine;
#[cfg(feature = "redis")]
pub use self::quorum::QuorumEngine;
#[cfg(feature = "redis")]
pub use self::redis::RedisEngine;
#[cfg(feature = "redis")]
pub(crate) use self::redis::{Options as RedisOptions, Protocol};
pub use answer::Answer;
pub use checkup::{Finding, Severity};
pub use features::Features;
pub use health::{Health, LinkHealth};
pub use memory::MemoryEngine;
pub use request::{
    AcquireRequest, Acquired, CancelRequest, ForceOutcome, ForceRequest, Grant, ListRequest, Part,
    Proposal, Queueing, ReleaseOutcome, ReleaseRequest, Renewal, Renewed, Standing, Wakeup,
};

pub use topology::{NodeInfo, Topology};

use crate::core::moment::Moment;
use crate::core::name::LockName;
pub use crate::core::replicas::Replicas;
use crate::error::StoreError;
use crate::info::LockInfo;
use crate::owner::Entry;

/// One client's connection to a store. The [module](self) has the rules.
pub trait Engine: Send + Sync + 'static {
    /// Returns the engine's properties.
    fn capabilities(&self) -> Capabilities;

    /// Acquires the lock, or joins its queue.
    fn acquire(&self, request: AcquireRequest) -> Answer<Acquired>;

    /// Acquires several locks independently, in one trip if the engine can. The answers are in the order of
    /// the requests.
    fn acquire_all(&self, requests: Vec<AcquireRequest>) -> Vec<Answer<Acquired>> {
        requests.into_iter().map(|request| self.acquire(request)).collect()
    }

    /// Extends several leases at once; the answers are in the order of the renewals. An error with one lock
    /// is the answer for that lock, and does not affect the others; an error of the whole call concerns all
    /// of them.
    fn renew(&self, renewals: Vec<Renewal>) -> Answer<Vec<Result<Renewed, StoreError>>>;

    /// Extends several leases as [`Engine::renew`] does, and waits until replicas have them. A replica that has a renewal
    /// also has everything that the store did before it, so [`Renewed::Extended`] means that so many replicas have the
    /// hold itself. For an engine that [has replicas](Capabilities::has_replicas).
    fn renew_replicated(
        &self,
        _renewals: Vec<Renewal>,
        _replicas: Replicas,
    ) -> Answer<Vec<Result<Renewed, StoreError>>> {
        Answer::now(Err(StoreError::refused("this store has no replicas").lasting()))
    }

    /// Returns a number that is the same for locks which one server has, or as many nodes must confirm. Renewals with different
    /// numbers are sent apart, so that those of a server that does not answer delay no others.
    fn server_of(&self, _name: &LockName, _entry: Entry) -> u64 {
        0
    }

    /// Ends an entry; after the last one, hands the lock over to the next waiter.
    fn release(&self, request: ReleaseRequest) -> Answer<ReleaseOutcome>;

    /// Leaves the queue, and gives the lock back if it was granted in the meantime.
    fn cancel(&self, request: CancelRequest) -> Answer<()>;

    /// The entry by which any client can end a hold of this client that is about to be detached: the same one, unless the
    /// engine uses others in its stores.
    fn entry_to_detach(&self, _name: &LockName, entry: Entry) -> Answer<Entry> {
        Answer::now(Ok(entry))
    }

    /// Detaches the hold of this entry from this client. An engine that ends a client's holds with the
    /// client must keep this one until its lease ends.
    ///
    /// # Errors
    /// Returns an error if the store fails; the hold may then end with this client.
    fn detach(&self, _name: &LockName, _entry: Entry) -> Result<(), StoreError> {
        Ok(())
    }

    /// Keeps the locks that this client holds when its process ends until the processes that it starts from
    /// now on have ended. For the same engines; returns false for all others.
    ///
    /// # Errors
    /// Returns an error of the operating system; the holds then end with this process.
    fn share_with_children(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Returns the holders and waiters of a lock. A lock that cannot be read is an error.
    fn inspect(&self, name: LockName) -> Answer<LockInfo>;

    /// Returns the locks with holders or waiters: each as of one moment, but not all of the same. A lock
    /// that cannot be read is in the list, with its [error](LockInfo::error), and does not affect the
    /// others.
    fn list(&self, request: ListRequest) -> Answer<Vec<LockInfo>>;

    /// Takes a lock away from its holders, and keeps a record of it.
    fn force_release(&self, request: ForceRequest) -> Answer<ForceOutcome>;

    /// Identifies the store, with the same text for all its clients.
    fn place(&self) -> String {
        self.capabilities().engine.to_owned()
    }

    /// Returns the state of the connections to the store.
    fn health(&self) -> Health {
        Health::default()
    }

    /// Checks the store, for an operator. It may take a second.
    fn checkup(&self) -> Answer<Vec<Finding>> {
        Answer::now(Ok(Vec::new()))
    }

    /// Returns the servers of the store, for an operator.
    fn topology(&self) -> Answer<Topology> {
        Answer::now(Ok(Topology::new(self.capabilities().engine)))
    }

    /// Sends wake-ups to `listener` from now on. Called once, before the first acquire that may wait. If the
    /// listener was dropped, so were its waiters.
    fn listen(&self, listener: Weak<dyn Listener>);

    /// Returns the fastest round trip to the store so far, from which timeouts are derived. It must not
    /// block.
    fn round_trip(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the store's time; none if the store has no clock of its own.
    fn time(&self) -> Answer<Option<Moment>> {
        Answer::now(Ok(None))
    }

    /// Called by a thread that is about to wait for a wake-up, in [`blocking`](crate::blocking). An engine
    /// may let it read its connection itself, which saves a thread switch.
    fn await_wakeup(&self) {}
}

/// Receives wake-ups, on whatever thread they arrive. It must not block.
pub trait Listener: Send + Sync {
    /// Handles a wake-up.
    fn wake(&self, wakeup: Wakeup);
}

/// The properties of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// The engine's name, for people.
    pub engine: &'static str,
    /// Which clients can share a lock through it.
    pub reach: Reach,
    /// The lease of a hand-over until it is confirmed; none if a hand-over always reaches its waiter.
    pub claim: Option<Duration>,
    /// Whether its store may have replicas, which [`Engine::renew_replicated`] waits for.
    pub has_replicas: bool,
    /// What its locks can do.
    pub features: Features,
}

/// Which clients can share a lock through an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reach {
    /// The tasks and threads of one process.
    Process,
    /// The processes of one machine.
    Machine,
    /// All clients that reach the server.
    Network,
}
