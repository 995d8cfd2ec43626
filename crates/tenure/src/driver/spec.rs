//! The options of an acquire, checked.

use std::sync::Arc;

use crate::core::lease::Lease;
use crate::core::name::LockName;
use crate::core::shape::{Kind, Shape};
use crate::engine::{AcquireRequest, Features, Queueing, Replicas};
use crate::error::{Error, Invalid};
use crate::group::Group;
use crate::info::About;
use crate::owner::{Entry, Owner};

/// All options of an acquire, except how long it waits.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) name: LockName,
    pub(crate) shape: Shape,
    pub(crate) lease: Lease,
    /// Whether the watchdog renews the lease.
    pub(crate) is_watched: bool,
    /// The least holding time in milliseconds, zero for none.
    pub(crate) at_least: u32,
    /// Whether local hand-over is off.
    pub(crate) is_fair: bool,
    /// Whether the fallback may serve it. Not where the caller gets no guard that would say so, and not where two holders at a
    /// time are never wanted.
    pub(crate) falls_back: bool,
    pub(crate) identity: Identity,
    pub(crate) about: Arc<About>,
    /// The group under which metrics count it.
    pub(crate) group: Group,
    /// Which replicas of the server must have the lock.
    pub(crate) replication: Option<Replication>,
}

/// Which replicas of the server must have a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replication {
    pub(crate) replicas: Replicas,
    /// Whether they must have its renewals as well.
    pub(crate) is_for_renewals: bool,
}

/// The options that tasks must have in common to take over a hold from each other.
#[derive(Clone, Copy)]
pub(super) struct HoldOptions<'a> {
    pub(super) lease: Lease,
    pub(super) about: &'a Arc<About>,
    pub(super) replication: Option<Replication>,
}

/// Under which owner an acquire runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Every acquire is an owner of its own.
    Each,
    /// The owner of the surrounding scope, if there is one; otherwise as `Each`.
    Scope,
    /// The owner of the surrounding scope.
    Current {
        /// Whether re-entries are counted in this process instead of the store.
        count_locally: bool,
    },
    /// This owner.
    Given {
        owner: Owner,
        /// Whether re-entries are counted in this process instead of the store.
        count_locally: bool,
    },
}

impl Spec {
    /// The entry of a new acquire.
    pub(super) fn entry(&self) -> Result<Entry, Error> {
        match self.identity {
            Identity::Each => Ok(Entry::single()),
            Identity::Scope => Ok(Owner::current().map_or_else(Entry::single, Entry::again)),
            Identity::Given { owner, .. } => Ok(Entry::again(owner)),
            Identity::Current { .. } => Owner::current().map(Entry::again).ok_or_else(|| {
                let sentence = "a re-entrant lock needs an owner: run it inside Owner::scope, \
                                or name one with Lock::owner";
                Error::Invalid(Invalid::new(sentence))
            }),
        }
    }

    pub(super) fn counts_locally(&self) -> bool {
        matches!(
            self.identity,
            Identity::Current { count_locally: true } | Identity::Given { count_locally: true, .. }
        )
    }

    /// Whether it counts a latch down. Undoing a count would close a latch that waiters have passed
    /// already, so it is never undone.
    pub(super) fn is_count(&self) -> bool {
        self.shape.kind() == Kind::Latch && self.shape.permits() > 0
    }

    /// Whether tasks of this process may pass the lock among themselves: it must be exclusive, without a
    /// named owner, and with a lease that the watchdog renews.
    pub(super) fn is_shareable(&self) -> bool {
        let is_plain = self.identity == Identity::Each && self.shape == Shape::mutex();
        is_plain && self.is_watched && !self.is_fair && self.at_least == 0
    }

    /// Whether readers of this process may share one hold: without a named owner, and with a lease that
    /// the watchdog renews.
    pub(super) fn shares_reading(&self) -> bool {
        let is_reader = self.shape.kind() == Kind::ReadWrite && self.shape.permits() == 1;
        let is_anonymous = match self.identity {
            Identity::Each => true,
            Identity::Scope => Owner::current().is_none(),
            _ => false,
        };
        is_reader && is_anonymous && self.is_watched && !self.is_fair && self.at_least == 0
    }

    /// Whether a task with these options can take over from one with those: other clients must not see a difference.
    pub(super) fn is_compatible_with(&self, other: HoldOptions<'_>) -> bool {
        let is_about_same = Arc::ptr_eq(&self.about, other.about) || self.about == *other.about;
        self.lease == other.lease && self.replication == other.replication && is_about_same
    }

    pub(super) fn hold_options(&self) -> HoldOptions<'_> {
        HoldOptions { lease: self.lease, about: &self.about, replication: self.replication }
    }

    /// Which replicas must have the lock. A latch or a barrier has no holder whose hold they could confirm.
    pub(super) fn replication(&self) -> Option<Replication> {
        let is_held = !matches!(self.shape.kind(), Kind::Latch | Kind::Barrier);
        self.replication.filter(|_| is_held)
    }

    /// Refuses options that contradict each other.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let (lease, within) =
            (self.lease.duration(), self.replication().map(|it| it.replicas.within()));
        match within.filter(|within| *within >= lease) {
            Some(within) => Err(Invalid::new(format!(
                "the time for replicas must be shorter than the lease of {lease:?}, not {within:?}"
            ))),
            None => Ok(()),
        }
    }

    /// Refuses what locks of a store cannot do.
    pub(super) fn check_features(&self, has: Features, engine: &str) -> Result<(), Invalid> {
        let wanted = [
            (
                self.is_fair && !has.has_queue,
                "serve waiters in order, which `fair` and elections need",
            ),
            (self.about.note.is_some() && !has.has_notes, "keep a note"),
            (self.at_least > 0 && !has.has_least_times, "keep a lock for a least holding time"),
            (self.shape.kind() == Kind::Barrier && !has.has_barriers, "make a barrier"),
            (
                self.shape.kind() == Kind::Latch && self.lease != Lease::MAX && !has.has_limits,
                "forget the counts of a latch after a time, which `keep_for` sets",
            ),
        ];
        match wanted.iter().find(|(is_refused, _)| *is_refused) {
            None => Ok(()),
            Some((_, what)) => Err(self.lacks(engine, what)),
        }
    }

    /// The error for what locks of a store cannot do.
    pub(crate) fn lacks(&self, engine: &str, what: &str) -> Invalid {
        Invalid::new(format!(
            "the lock `{}` is of a store ({engine}) that cannot {what}: leave that out, or use a store in Tenure's own \
             format",
            self.name
        ))
    }

    pub(super) fn request(&self, entry: Entry, queue: Option<Queueing>) -> AcquireRequest {
        AcquireRequest {
            name: self.name.clone(),
            entry,
            shape: self.shape,
            lease: self.lease,
            about: self.about.clone(),
            queue,
            proposal: None,
        }
    }
}
