//! Requests to an engine, and its answers. Plain values: every request names the lock and the entry
//! it is for, and may be sent again with the same effect (I5).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::core::fence::Fence;
use crate::core::lease::Lease;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::core::shape::{Kind, Shape};
use crate::info::About;
use crate::owner::{Entry, Owner};

/// A request to acquire the lock, or to join its queue.
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    /// The lock.
    pub name: LockName,
    /// The entry.
    pub entry: Entry,
    /// The kind, limit and permits.
    pub shape: Shape,
    /// The lease.
    pub lease: Lease,
    /// The description of the client, for people.
    pub about: Arc<About>,
    /// Join the queue if the lock is not free. Without this, one attempt is made.
    pub queue: Option<Queueing>,
    /// The fence that the client proposes: for a store that is one node of a quorum. None: the store chooses it.
    /// Latches and barriers, whose fences have no meaning, ignore it.
    pub proposal: Option<Proposal>,
}

/// A fence that a client proposes to each node of a quorum, so that all nodes that grant a lock agree on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The fence. With the owner, it is also the waiter's ticket: a queue is ordered by it.
    pub fence: Fence,
    /// The owner holds the lock with this fence at a majority of the nodes, and only repairs a node that lost the
    /// hold. So it precedes all waiters of that node, and its fence may be the last one again.
    pub is_repair: bool,
    /// The node has answered an earlier request of this entry. So this one is not the latest, which sets the limit of a
    /// semaphore.
    pub is_repeated: bool,
}

/// How a request waits in the queue.
#[derive(Clone, Copy, Debug)]
pub struct Queueing {
    /// A waiter that does not ask again for this long is considered dead.
    pub heartbeat: Duration,
    /// The claim lease: that of a hand-over until its first renewal. A waiter that is connected but stopped
    /// delays the queue by this time, not by the full lease.
    pub claim: Duration,
    /// How many fences to reserve for a hand-over, for the local holders that follow. An immediate grant
    /// takes one.
    pub fences: u32,
}

/// The answer to an [`AcquireRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The lock is held. If asked again for the same entry, the answer is the same grant.
    Granted(Grant),
    /// The entry is in the queue, or, without one, the lock is held; a wake-up will follow.
    Queued(Standing),
    /// Others hold it or wait for it, and the request does not wait.
    Busy,
    /// The name is in use for another kind of lock, or with another limit, which only a
    /// semaphore may change. Nothing was done.
    Mismatch {
        /// The kind it is in use as.
        kind: Kind,
        /// The limit it is in use with.
        limit: u32,
    },
    /// The owner already holds the lock, with fewer permits than it now requests.
    Upgrade {
        /// The permits that it holds.
        held: u32,
    },
    /// The lock is free, but the proposed fence is not larger than the last one, or is far behind the store's
    /// calendar. Nothing was done: the client proposes again, above `last`.
    Outdated {
        /// The last fence of this lock; or the calendar, if that is larger and the proposal is far behind it.
        last: Fence,
    },
    /// The proposed fence is too far ahead of the store's calendar. Nothing was done.
    Ahead {
        /// The store's calendar.
        clock: Moment,
    },
}

/// The grant of a lock to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The fence of this grant; re-entries and renewals do not change it. [`Fence::NONE`] where there are
    /// [no fences](super::Features).
    pub fence: Fence,
    /// How many fences, from `fence` on, belong to this grant.
    pub fences: u32,
    /// How long it is valid, counted from `at`.
    pub lease: Duration,
    /// When it was made or last confirmed, by the store's clock.
    pub at: Moment,
}

/// The position of an entry in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// How many entries are ahead: exact below [`Standing::AHEAD_COUNTED`], which means "that many or
    /// more".
    pub ahead: u32,
    /// How long until the first lease of the current holders ends, unless it is renewed or released.
    pub free_in: Duration,
    /// The store's clock when it answered.
    pub at: Moment,
}

impl Standing {
    /// The maximum that is counted: an exact number beyond it would not be used.
    pub const AHEAD_COUNTED: u32 = 8;
}

/// A request to extend the lease of a holder.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// The lock.
    pub name: LockName,
    /// An entry of its holder. One that the store does not have, or that has ended, is *not held*, though its owner may have others:
    /// these may end at any time.
    pub entry: Entry,
    /// The lease from now on.
    pub lease: Lease,
    /// In the same step, raises the holder's fence and the last fence of the lock to this one, where they are
    /// smaller: for a holder that several nodes of a quorum gave different fences. It must be a fence that a node has
    /// given. What the new fence leaves of the holder's range of fences stays, at least the fence itself.
    pub commit: Option<Fence>,
}

/// The answer to a [`Renewal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The lease now ends no earlier than its length after the request was sent. The fence to commit, if any, is
    /// stored.
    Extended,
    /// The owner does not hold the lock by this entry. Nothing was changed, and nothing was created (I3).
    NotHeld,
    /// The lease was extended in the store, but fewer replicas than asked for have confirmed it in time. Only the answer
    /// to a [replicated renewal](super::Engine::renew_replicated).
    Unreplicated {
        /// How many have confirmed it.
        replicas: u32,
    },
}

/// A request to release the lock.
#[derive(Clone, Debug)]
pub struct ReleaseRequest {
    /// The lock.
    pub name: LockName,
    /// The entry that ends.
    pub entry: Entry,
    /// Keep the lock occupied for this long after its last entry has ended.
    pub linger: Duration,
    /// Keep the entry with this many permits and give back the others, if it is the owner's only entry. Zero
    /// ends it.
    pub keep: u32,
    /// The hold came by a hand-over, so another client probably waits for the next one. A hint, which changes how
    /// soon that client is notified, and nothing else.
    pub is_contended: bool,
}

impl ReleaseRequest {
    /// Creates a request that ends an entry, without lingering.
    pub const fn new(name: LockName, entry: Entry) -> Self {
        Self { name, entry, linger: Duration::ZERO, keep: 0, is_contended: false }
    }
}

/// The answer to a [`ReleaseRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// This entry has ended, or keeps fewer permits.
    Released {
        /// Entries of the owner that have not ended.
        remaining: u32,
    },
    /// There was no such entry: it had ended already, or was never granted.
    NotHeld,
}

/// A request to leave the queue, and to give the lock back if it was granted in the meantime.
#[derive(Clone, Debug)]
pub struct CancelRequest {
    /// The lock.
    pub name: LockName,
    /// The entry to cancel.
    pub entry: Entry,
}

/// A request to list locks.
#[derive(Clone, Debug)]
pub struct ListRequest {
    /// Only names with this prefix.
    pub prefix: String,
    /// The maximum number of locks, sorted by name.
    pub limit: usize,
}

/// A request to take a lock away from its holders.
#[derive(Clone, Debug)]
pub struct ForceRequest {
    /// The lock.
    pub name: LockName,
    /// Only from this owner, if it holds the lock.
    pub expected: Option<Owner>,
    /// The reason, for the record.
    pub reason: Arc<str>,
    /// The client that forces the release, for the record.
    pub by: Arc<About>,
}

/// The answer to a [`ForceRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForceOutcome {
    /// These owners lost it.
    Released(Vec<Owner>),
    /// It has no holder, or the expected owner does not hold it. Nothing was changed.
    NotHeld,
}

/// A notification for a waiter or holder. It is a hint: every wake-up may be lost or late, and asking
/// again returns the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// The lock was handed over to a waiter.
    Granted {
        /// The lock.
        name: LockName,
        /// The entry that waited.
        entry: Entry,
        /// Its grant.
        grant: Grant,
    },
    /// The lock was taken away from a holder.
    Lost {
        /// The lock.
        name: LockName,
        /// Its former holder.
        owner: Owner,
    },
    /// The lock will be free sooner than the waiter's standing said: it should ask again.
    Sooner {
        /// The lock.
        name: LockName,
        /// The entry that waits.
        entry: Entry,
    },
    /// Permits of the lock are free, and none of its waiters was granted them: all of them should ask again. From an
    /// engine without a queue.
    Freed {
        /// The lock.
        name: LockName,
    },
    /// Wake-ups may have been missed: every waiter should ask again, and every holder renew.
    Missed,
    /// Wake-ups for some of the locks may have been missed: their waiters should ask again, and their holders renew.
    MissedIn(Part),
    /// The store can be reached again after it could not be: requests that failed meanwhile should be tried again now.
    Returned,
}

/// A part of the locks of a store.
#[derive(Clone)]
pub struct Part(Arc<dyn Fn(&LockName) -> bool + Send + Sync>);

impl Part {
    /// The locks for which a function returns true. It must not block.
    pub fn new(contains: impl Fn(&LockName) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(contains))
    }

    /// Whether a lock belongs to it.
    pub fn contains(&self, name: &LockName) -> bool {
        (self.0)(name)
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Part")
    }
}

/// The same part, not an equal one.
impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Part {}
