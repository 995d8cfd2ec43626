//! The contract between the driver and the store: what every engine must do.
//!
//! An engine performs single operations. Waiting, retrying and renewing live in the driver,
//! once for all engines; one conformance suite judges all of them. An engine is one client's
//! connection to a store; several clients share the store.
//!
//! # The rules
//!
//! 1. **Each operation is atomic**, and happens at one moment of the store's clock, between the
//!    call and the answer.
//! 2. **Leases end by the store's clock.** A holder whose lease has ended holds nothing, whether
//!    or not anything has noticed yet. Every operation first brings its lock to the present;
//!    only a release may come late, as long as nobody has come in between.
//! 3. **Exclusion** (I1): the permits of holders with a valid lease never exceed the limit.
//! 4. **Identity** (I3): renewing and releasing work for the owner alone; renewing never creates
//!    what is missing. Another kind or limit on a name in use is a
//!    [`Mismatch`](Acquired::Mismatch), and changes nothing.
//! 5. **Repeatable** (I5): the same request sent twice leaves the same state and gets the same
//!    answer, except that leases count from the later one. An acquire for an entry that already
//!    holds returns its grant; for one that already waits, its standing.
//! 6. **A lease never becomes shorter** by renewal or re-entry, only by release.
//! 7. **Fences** (I4) grow with every grant, across all losses of data.
//! 8. **The queue** (I10): who comes first is served first. A release hands the lock to the first
//!    waiter in the same step, and wakes it alone. A request that does not wait is not served
//!    before those who do. A waiter that has not asked again within its heartbeat is passed over,
//!    and so is one whose client is known to be gone.
//! 9. **A hand-over** is valid for the claim lease; the first renewal, or asking again, makes it
//!    the full lease.
//! 10. **Done, refused or unknown** (I6): an error says whether the operation may have taken
//!     effect. Every answer comes, good or bad, within a time that the engine bounds.
//! 11. **Wake-ups are hints.** They may be lost, late or repeated; asking again must tell the
//!     same. After a gap an engine sends [`Wakeup::Missed`].
//! 12. **Nothing is left behind** by a lock that nobody holds or wants, beyond what fences need.
//! 13. **In order**: what one client acquires, releases and cancels under one name takes effect in the
//!     order of its calls, if each had returned before the next was made, and none met trouble. It
//!     does so whether or not its answer is polled.

use std::sync::Weak;
use std::time::Duration;

mod answer;
mod checkup;
mod health;
#[cfg(feature = "redis")]
mod link_monitor;
#[cfg(feature = "local")]
mod local;
pub(crate) mod memory;
#[cfg(feature = "redis")]
mod redis;
mod request;

#[cfg(feature = "local")]
pub use self::local::LocalEngine;
#[cfg(feature = "redis")]
pub(crate) use self::redis::Options as RedisOptions;
#[cfg(feature = "redis")]
pub use self::redis::RedisEngine;
pub use answer::Answer;
pub use checkup::{Finding, Severity};
pub use health::{Health, LinkHealth};
pub use memory::MemoryEngine;
pub use request::{
    AcquireRequest, Acquired, CancelRequest, ForceOutcome, ForceRequest, Grant, ListRequest,
    Queueing, ReleaseOutcome, ReleaseRequest, Renewal, Renewed, Standing, Wakeup,
};

use crate::core::name::LockName;
use crate::error::StoreError;
use crate::info::LockInfo;
use crate::owner::Owner;

/// One client's connection to a store. The [module](self) tells the rules.
pub trait Engine: Send + Sync + 'static {
    /// What this engine can do, and what it promises.
    fn capabilities(&self) -> Capabilities;

    /// Takes the lock, or joins its queue.
    fn acquire(&self, request: AcquireRequest) -> Answer<Acquired>;

    /// The same for several locks, each on its own, in one trip where the engine can. The answers
    /// are in the order of the requests.
    fn acquire_all(&self, requests: Vec<AcquireRequest>) -> Vec<Answer<Acquired>> {
        requests.into_iter().map(|request| self.acquire(request)).collect()
    }

    /// Extends many leases at once; the answers are in the order of the renewals. StoreError with one
    /// lock is the answer for that lock, and leaves the others alone; an error of the whole call is
    /// for trouble that concerns all of them.
    fn renew(&self, renewals: Vec<Renewal>) -> Answer<Vec<Result<Renewed, StoreError>>>;

    /// Ends an entry; with the last one, hands the lock to the next waiter.
    fn release(&self, request: ReleaseRequest) -> Answer<ReleaseOutcome>;

    /// Leaves the queue, and gives the lock back if it was granted in the meantime.
    fn cancel(&self, request: CancelRequest) -> Answer<()>;

    /// The hold of this owner goes on without this client. It matters to an engine that ends what
    /// a client holds when the client is gone: it must not end this one before its lease.
    ///
    /// # Errors
    /// StoreError with the store: the hold may end with this client.
    fn detach(&self, _name: &LockName, _owner: Owner) -> Result<(), StoreError> {
        Ok(())
    }

    /// What this client holds when its process ends stays held until those have ended that the process
    /// starts from now on. It matters to the same engines; false for all others.
    ///
    /// # Errors
    /// StoreError with the operating system: what is held ends with this process.
    fn share_with_children(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Who holds a lock, and who waits for it. A lock that cannot be read is an error.
    fn inspect(&self, name: LockName) -> Answer<LockInfo>;

    /// Locks that are held or wanted: each as it was at one moment, but not all at the same. A lock
    /// that cannot be read is in the list, with its [trouble](LockInfo::trouble), and leaves the
    /// others alone.
    fn list(&self, request: ListRequest) -> Answer<Vec<LockInfo>>;

    /// Takes a lock away from its holders, and keeps a record of it.
    fn force_release(&self, request: ForceRequest) -> Answer<ForceOutcome>;

    /// Which store this is, in words that are the same for all its clients.
    fn place(&self) -> String {
        self.capabilities().engine.to_owned()
    }

    /// How the connections to the store are.
    fn health(&self) -> Health {
        Health::default()
    }

    /// What the store tells about itself, for an operator. It may take a second.
    fn checkup(&self) -> Answer<Vec<Finding>> {
        Answer::now(Ok(Vec::new()))
    }

    /// Sends wake-ups to `listener` from now on. Called once, before the first acquire that
    /// may wait; a listener that is gone marks its waiters as gone.
    fn listen(&self, listener: Weak<dyn Listener>);

    /// The fastest round trip to the store so far: times that depend on the distance follow it.
    fn round_trip(&self) -> Duration {
        Duration::ZERO
    }

    /// The calling thread is about to wait for a wake-up, in [`blocking`](crate::blocking). An engine that
    /// can lets it read them itself, which saves waking it.
    fn await_wakeup(&self) {}
}

/// Receives wake-ups, on whatever thread they arrive. It must not block.
pub trait Listener: Send + Sync {
    /// Something happened.
    fn wake(&self, wakeup: Wakeup);
}

/// What an engine can do, and what it promises.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// The engine's name, for people.
    pub engine: &'static str,
    /// Who can share a lock through it.
    pub reach: Reach,
    /// The lease of a grant by hand-over until it is confirmed; none where a hand-over cannot
    /// miss its waiter.
    pub claim: Option<Duration>,
}

/// Who can share a lock through an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reach {
    /// The tasks and threads of one process.
    Process,
    /// The processes of one machine.
    Machine,
    /// Everyone who reaches the server.
    Network,
}
