//! Shared reading: readers of one process with the same wishes stand on one hold in the store. Only
//! the first of them makes a trip; those who come while it is on its way wait for its answer.
//!
//! The bounds are those of the local hand-over ([`super::pass`]): a hold takes in readers for 50 ms and
//! 64 of them at most, so a writer that waits elsewhere is not kept waiting by an endless chain of
//! them (I10). Their fence is the same: it is larger than that of every writer before, and smaller
//! than that of every writer after.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::pass::{ENOUGH, PASS_TIME, PASSES};
use super::wait::timed_out;
use super::{Driver, Held, Spec, foreign};
use crate::clock;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::error::Error;
use crate::guard::Guard;
use crate::sync::lock;

/// How long a reader waits for the first of its party, whose future somebody else must poll.
const FOLLOWS: Duration = Duration::from_secs(1);

/// Who reads, or is about to.
#[derive(Default)]
pub(super) struct Readers {
    /// The hold of each lock that takes in further readers, and how many it has taken in.
    reading: HashMap<LockName, (Arc<Held>, u8)>,
    /// Those on their way, and who waits for them.
    arriving: HashMap<LockName, Party>,
}

struct Party {
    spec: Arc<Spec>,
    followers: Vec<Follower>,
}

type Follower = oneshot::Sender<Result<Guard, Error>>;

impl Driver {
    /// Acquires for reading: on a hold that is there, with one that is on its way, or first.
    pub(super) async fn acquire_reading(
        self: &Arc<Self>,
        spec: &Arc<Spec>,
        started: Moment,
        end: Moment,
    ) -> Result<Guard, Error> {
        loop {
            if let Some(guard) = self.read_along(spec) {
                return Ok(guard);
            }
            let follow = match self.set_out(spec) {
                Way::First(first) => return first.acquire(started, end).await,
                Way::Alone => return self.acquire_in_queue(spec, started, end).await,
                Way::Behind(follow) => follow,
            };
            match self.before(end.min(clock::now() + FOLLOWS), follow).await {
                Some(Ok(result)) => return result,
                // The first has given up, or had no room: we go ourselves.
                Some(Err(_)) => {}
                None if clock::now() >= end => return Err(timed_out(&spec.name, started)),
                // Its future may not be polled any more.
                None => return self.acquire_in_queue(spec, started, end).await,
            }
        }
    }

    /// One more reader on a hold of this process, if there is one to stand on.
    pub(super) fn read_along(&self, spec: &Spec) -> Option<Guard> {
        if !spec.shares_reading() {
            return None;
        }
        let mut readers = lock(&self.readers);
        let (held, taken_in) = readers.reading.get_mut(&spec.name)?;
        if !is_open(held, *taken_in, spec) || !self.count_once_more(held) {
            readers.reading.remove(&spec.name);
            return None;
        }
        *taken_in += 1;
        Some(Guard::counted(held.clone()))
    }

    /// Lets others read along on a hold that was just granted.
    pub(super) fn let_read_along(&self, spec: &Spec, guard: Guard) -> Guard {
        if !spec.shares_reading() {
            return guard;
        }
        let held = guard.into_held();
        self.begin_count(&held, spec.shape);
        lock(&self.readers).reading.insert(spec.name.clone(), (held.clone(), 0));
        Guard::counted(held)
    }

    /// The last reader has left a hold.
    pub(super) fn stop_reading_along(&self, held: &Arc<Held>) {
        let mut readers = lock(&self.readers);
        if readers.reading.get(&held.name).is_some_and(|(other, _)| Arc::ptr_eq(other, held)) {
            readers.reading.remove(&held.name);
        }
    }

    fn set_out<'a>(self: &'a Arc<Self>, spec: &'a Arc<Spec>) -> Way<'a> {
        let mut readers = lock(&self.readers);
        let Some(party) = readers.arriving.get_mut(&spec.name) else {
            let party = Party { spec: spec.clone(), followers: Vec::new() };
            readers.arriving.insert(spec.name.clone(), party);
            return Way::First(First { driver: self, spec, has_arrived: false });
        };
        let agrees = party.spec.is_compatible_with(spec.lease, &spec.about);
        if !agrees || party.followers.len() >= PASSES.into() {
            return Way::Alone;
        }
        let (follower, follow) = oneshot::channel();
        party.followers.push(follower);
        Way::Behind(follow)
    }
}

/// How a reader gets to its hold.
enum Way<'a> {
    First(First<'a>),
    Behind(oneshot::Receiver<Result<Guard, Error>>),
    /// Its wishes are others, or there is no room: by itself.
    Alone,
}

/// The first of a party. Dropped on its way, the others go themselves.
struct First<'a> {
    driver: &'a Arc<Driver>,
    spec: &'a Arc<Spec>,
    /// Its party has left; another of the same name is not its own.
    has_arrived: bool,
}

impl First<'_> {
    async fn acquire(mut self, started: Moment, end: Moment) -> Result<Guard, Error> {
        match self.driver.acquire_in_queue(self.spec, started, end).await {
            Ok(guard) => {
                let guard = self.driver.let_read_along(self.spec, guard);
                self.share();
                Ok(guard)
            }
            // Its own time is over, not that of the others.
            Err(error @ Error::TimedOut { .. }) => Err(error),
            Err(error) => {
                for follower in self.followers() {
                    foreign::call(|| drop(follower.send(Err(error.clone()))));
                }
                Err(error)
            }
        }
    }

    /// Takes in those who waited for it.
    fn share(&mut self) {
        for follower in self.followers() {
            if let Some(along) = self.driver.read_along(self.spec) {
                // One who has left drops it.
                foreign::call(|| drop(follower.send(Ok(along))));
            }
        }
    }

    fn followers(&mut self) -> Vec<Follower> {
        if std::mem::replace(&mut self.has_arrived, true) {
            return Vec::new();
        }
        let party = lock(&self.driver.readers).arriving.remove(&self.spec.name);
        party.map(|party| party.followers).unwrap_or_default()
    }
}

impl Drop for First<'_> {
    fn drop(&mut self) {
        if !self.driver.is_inherited() {
            drop(self.followers());
        }
    }
}

fn is_open(held: &Held, taken_in: u8, spec: &Spec) -> bool {
    let now = clock::now();
    taken_in < PASSES
        && now.since(held.process_since) < PASS_TIME
        && held.deadline().since(now) > ENOUGH.min(held.lease().duration() / 2)
        && held.lost(now).is_none()
        && spec.is_compatible_with(held.lease(), &held.about)
}
