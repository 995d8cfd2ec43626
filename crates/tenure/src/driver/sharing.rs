//! Shared reads: readers of one process with the same options share one hold in the store. Only the
//! first of them, the leader, makes a trip; readers that arrive while it is in flight follow it and
//! wait for its answer.
//!
//! The bounds are those of the local hand-over ([`super::pass`]): a hold admits readers for 50 ms and
//! 64 of them at most, so an endless chain of readers cannot starve a writer that waits elsewhere (I10).
//! They have the same fence: it is larger than that of every writer before, and smaller than that of
//! every writer after.
//!
//! Lock order: shared reads before re-entries. While either is held, no engine is called, no guard is
//! dropped and no foreign code runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;

use super::pass::{ENOUGH, PASS_TIME, PASSES};
use super::reentry::Reentries;
use super::wait::timed_out;
use super::{Driver, Held, Spec, foreign};
use crate::clock;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::error::Error;
use crate::guard::Guard;
use crate::sync::lock;

/// How long a follower waits for its leader, whose future may not be polled.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(1);

/// The shared holds of this process, and the reads in flight that may become one.
#[derive(Default)]
pub(super) struct SharedReads {
    reads: Mutex<Reads>,
}

#[derive(Default)]
struct Reads {
    /// The hold of each lock that admits further readers, and how many it has admitted.
    open: HashMap<LockName, (Arc<Held>, u8)>,
    /// The leaders in flight, and their followers.
    in_flight: HashMap<LockName, InFlight>,
}

struct InFlight {
    spec: Arc<Spec>,
    followers: Vec<Follower>,
}

type Follower = oneshot::Sender<Result<Guard, Error>>;

/// How a reader gets its hold.
enum Role {
    /// It asks the store, also for its followers.
    Leader,
    /// It waits for the leader's answer.
    Follower(oneshot::Receiver<Result<Guard, Error>>),
    /// The leader's options differ, or its followers are too many: it asks the store for itself.
    Alone,
}

impl SharedReads {
    /// Admits one more reader to a hold of this process, if there is one.
    pub(super) fn enter(&self, spec: &Spec, reentries: &Reentries) -> Option<Guard> {
        if !spec.shares_reading() {
            return None;
        }
        let mut reads = lock(&self.reads);
        let (held, admitted) = reads.open.get_mut(&spec.name)?;
        if !is_open(held, *admitted, spec) || !reentries.enter_again(held) {
            reads.open.remove(&spec.name);
            return None;
        }
        *admitted += 1;
        Some(Guard::counted(held.clone()))
    }

    /// Opens a hold that was just granted to further readers, if its options allow it.
    pub(super) fn open(&self, spec: &Spec, guard: Guard, reentries: &Reentries) -> Guard {
        if !spec.shares_reading() {
            return guard;
        }
        let held = guard.into_held();
        reentries.count(&held, spec.shape);
        lock(&self.reads).open.insert(spec.name.clone(), (held.clone(), 0));
        Guard::counted(held)
    }

    /// Closes a hold whose last reader has left.
    pub(super) fn close(&self, held: &Arc<Held>) {
        let mut reads = lock(&self.reads);
        if reads.open.get(&held.name).is_some_and(|(other, _)| Arc::ptr_eq(other, held)) {
            reads.open.remove(&held.name);
        }
    }

    fn set_out(&self, spec: &Arc<Spec>) -> Role {
        let mut reads = lock(&self.reads);
        let Some(in_flight) = reads.in_flight.get_mut(&spec.name) else {
            let in_flight = InFlight { spec: spec.clone(), followers: Vec::new() };
            reads.in_flight.insert(spec.name.clone(), in_flight);
            return Role::Leader;
        };
        let is_compatible = in_flight.spec.is_compatible_with(spec.hold_options());
        if !is_compatible || in_flight.followers.len() >= PASSES.into() {
            return Role::Alone;
        }
        let (follower, answer) = oneshot::channel();
        in_flight.followers.push(follower);
        Role::Follower(answer)
    }

    /// Ends a leader's flight, and returns its followers.
    fn land(&self, name: &LockName) -> Vec<Follower> {
        let in_flight = lock(&self.reads).in_flight.remove(name);
        in_flight.map(|it| it.followers).unwrap_or_default()
    }
}

impl Driver {
    /// Acquires for reading: on an existing hold, as a follower of a read in flight, or as a leader.
    pub(super) async fn acquire_reading(
        self: &Arc<Self>,
        spec: &Arc<Spec>,
        started: Moment,
        end: Moment,
    ) -> Result<Guard, Error> {
        loop {
            if let Some(guard) = self.shared_reads.enter(spec, &self.reentries) {
                return Ok(guard);
            }
            let answer = match self.shared_reads.set_out(spec) {
                Role::Leader => return Leader::new(self, spec).acquire(started, end).await,
                Role::Alone => return self.acquire_in_queue(spec, started, end).await,
                Role::Follower(answer) => answer,
            };
            match self.before(end.min(clock::now() + FOLLOW_TIMEOUT), answer).await {
                Some(Ok(result)) => return result,
                // The leader has given up, or its hold was full: try again.
                Some(Err(_)) => {}
                None if clock::now() >= end => return Err(timed_out(&spec.name, started)),
                // The leader's future may not be polled any more.
                None => return self.acquire_in_queue(spec, started, end).await,
            }
        }
    }
}

/// The leader of a read in flight. If it is dropped, its followers try again.
struct Leader<'a> {
    driver: &'a Arc<Driver>,
    spec: &'a Arc<Spec>,
    /// Its flight has ended: another of the same name is not its own.
    has_landed: bool,
}

impl<'a> Leader<'a> {
    fn new(driver: &'a Arc<Driver>, spec: &'a Arc<Spec>) -> Self {
        Self { driver, spec, has_landed: false }
    }

    async fn acquire(mut self, started: Moment, end: Moment) -> Result<Guard, Error> {
        match self.driver.acquire_in_queue(self.spec, started, end).await {
            Ok(guard) => {
                let Driver { shared_reads, reentries, .. } = &**self.driver;
                let guard = shared_reads.open(self.spec, guard, reentries);
                self.admit_followers();
                Ok(guard)
            }
            // The leader's timeout is not that of its followers.
            Err(error @ Error::TimedOut { .. }) => Err(error),
            Err(error) => {
                for follower in self.land() {
                    foreign::call(|| drop(follower.send(Err(error.clone()))));
                }
                Err(error)
            }
        }
    }

    fn admit_followers(&mut self) {
        let Driver { shared_reads, reentries, .. } = &**self.driver;
        for follower in self.land() {
            if let Some(guard) = shared_reads.enter(self.spec, reentries) {
                // A follower that has left drops it.
                foreign::call(|| drop(follower.send(Ok(guard))));
            }
        }
    }

    fn land(&mut self) -> Vec<Follower> {
        if std::mem::replace(&mut self.has_landed, true) {
            return Vec::new();
        }
        self.driver.shared_reads.land(&self.spec.name)
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if !self.driver.is_inherited() {
            drop(self.land());
        }
    }
}

fn is_open(held: &Held, admitted: u8, spec: &Spec) -> bool {
    let now = clock::now();
    admitted < PASSES
        && now.since(held.process_since) < PASS_TIME
        && held.deadline().since(now) > ENOUGH.min(held.lease().duration() / 2)
        && held.lost(now).is_none()
        && spec.is_compatible_with(held.options())
}
