//! What an engine is asked, and what it answers. Plain values: every request names the lock and
//! the entry it is for, and may be sent again with the same effect (I5).

use std::sync::Arc;
use std::time::Duration;

use crate::core::fence::Fence;
use crate::core::lease::Lease;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::core::shape::{Kind, Shape};
use crate::info::About;
use crate::owner::{Entry, Owner};

/// Take the lock, or join its queue.
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    /// The lock.
    pub name: LockName,
    /// Who enters.
    pub entry: Entry,
    /// How much of it is wanted.
    pub shape: Shape,
    /// How long it is held without renewal.
    pub lease: Lease,
    /// Who asks, for others to read.
    pub about: Arc<About>,
    /// Join the queue if it is not free; without this, one attempt is made.
    pub queue: Option<Queueing>,
}

/// How a request stands in the queue.
#[derive(Clone, Copy, Debug)]
pub struct Queueing {
    /// A waiter that does not ask again for this long is taken for dead.
    pub heartbeat: Duration,
    /// The lease of a grant by hand-over, until its first renewal. A waiter that is connected
    /// but frozen delays the queue by this long, not by the full lease.
    pub claim: Duration,
    /// How many fences to reserve when the grant is a hand-over, for the local holders that
    /// follow. A grant on the spot takes one.
    pub fences: u32,
}

/// The answer to an [`AcquireRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The lock is held. Asked again with the same entry, the answer is the same grant.
    Granted(Grant),
    /// Others are ahead; a wake-up will tell.
    Queued(Standing),
    /// Others hold it, and the request was not to wait.
    Busy,
    /// The name is in use for another kind of lock, or with another limit, which only a
    /// semaphore may change. Nothing was done.
    Mismatch {
        /// What the name is in use for.
        kind: Kind,
        /// The limit it is in use with.
        limit: u32,
    },
    /// The owner already holds the lock, with fewer permits than it now asks for.
    Upgrade {
        /// The permits that it holds.
        held: u32,
    },
}

/// A lock was given to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The fence of this grant; re-entries and renewals do not change it.
    pub fence: Fence,
    /// How many fences, from `fence` on, belong to this grant.
    pub fences: u32,
    /// How long it is valid, counted from `at`.
    pub lease: Duration,
    /// When it was made or last confirmed, by the store's clock.
    pub at: Moment,
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// How many are ahead: exact up to [`Standing::AHEAD_COUNTED`], which means "that many or
    /// more".
    pub ahead: u32,
    /// How long the present holders still have, if none of them renews or releases.
    pub free_in: Duration,
    /// The store's clock when it answered.
    pub at: Moment,
}

impl Standing {
    /// Counting further would cost more than anyone gains from it.
    pub const AHEAD_COUNTED: u32 = 8;
}

/// Extend the lease of an owner that holds the lock.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// The lock.
    pub name: LockName,
    /// Its holder.
    pub owner: Owner,
    /// The lease from now on.
    pub lease: Lease,
}

/// The answer to a [`Renewal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The lease now ends no earlier than its length after the request was sent.
    Extended,
    /// The owner does not hold the lock. Nothing was changed, and nothing was created (I3).
    NotHeld,
}

/// Leave the lock.
#[derive(Clone, Debug)]
pub struct ReleaseRequest {
    /// The lock.
    pub name: LockName,
    /// The entry that ends.
    pub entry: Entry,
    /// Keep the lock occupied for this long after its last entry has ended.
    pub linger: Duration,
    /// Do not end the entry: give back all permits of its owner but so many, if it is the only
    /// entry. Zero ends it.
    pub keep: u32,
    /// The hold came by a hand-over, so another client probably waits for the next one. A hint, which changes how
    /// soon that client is notified, and nothing else.
    pub is_contended: bool,
}

impl ReleaseRequest {
    /// Ends an entry, and leaves nothing.
    pub const fn new(name: LockName, entry: Entry) -> Self {
        Self { name, entry, linger: Duration::ZERO, keep: 0, is_contended: false }
    }
}

/// The answer to a [`ReleaseRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// This entry has ended, or keeps fewer permits; so many of the same owner remain.
    Released {
        /// Entries of the owner that have not ended.
        remaining: u32,
    },
    /// There was no such entry: it had ended already, or was never made.
    NotHeld,
}

/// Leave the queue, and give the lock back if it was granted in the meantime.
#[derive(Clone, Debug)]
pub struct CancelRequest {
    /// The lock.
    pub name: LockName,
    /// The entry that is not wanted any more.
    pub entry: Entry,
}

/// Which locks to list.
#[derive(Clone, Debug)]
pub struct ListRequest {
    /// Only names that start with this.
    pub prefix: String,
    /// At most so many, in order of their names.
    pub limit: usize,
}

/// Take a lock away from its holders.
#[derive(Clone, Debug)]
pub struct ForceRequest {
    /// The lock.
    pub name: LockName,
    /// Only if this owner holds it, and only from this owner.
    pub expected: Option<Owner>,
    /// Why, for the record.
    pub reason: Arc<str>,
    /// Who does it, for the record.
    pub by: Arc<About>,
}

/// The answer to a [`ForceRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForceOutcome {
    /// These owners held it, and do not any more.
    Released(Vec<Owner>),
    /// Nobody holds it, or not the owner expected. Nothing was changed.
    NotHeld,
}

/// Something a waiter or holder should know. A hint: every wake-up may be lost or come late,
/// and asking again gives the same answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// The lock was handed over to a waiter.
    Granted {
        /// The lock.
        name: LockName,
        /// The entry that waited.
        entry: Entry,
        /// What it was given.
        grant: Grant,
    },
    /// The lock was taken away from a holder.
    Lost {
        /// The lock.
        name: LockName,
        /// Its former holder.
        owner: Owner,
    },
    /// The lock will be free sooner than a waiter was told: it should ask again.
    Sooner {
        /// The lock.
        name: LockName,
        /// The entry that waits.
        entry: Entry,
    },
    /// Wake-ups may have been missed: every waiter should ask again, every holder renew.
    Missed,
}
