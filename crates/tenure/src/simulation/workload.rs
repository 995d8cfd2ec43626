//! What the tasks of a simulated client do: sections under locks of several kinds, acquired and ended in every way.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::judge::{Judge, Wanted};
use crate::sync::lock as guarded;
use crate::{Error, Guard, Lock, Owner, Shape, Tenure, WriteGuard};

/// How late an acquire with a time may return: it is told by a timer of the driver, and undone in the background.
const LATE: Duration = Duration::from_millis(20);

const PERMITS: u32 = 2;

/// One task.
pub(super) struct Task {
    pub(super) number: usize,
    pub(super) tenure: Tenure,
    pub(super) judge: Arc<Mutex<Judge>>,
    pub(super) random: fastrand::Rng,
    /// The owners that tasks of this and of other clients share; none if every acquire is an owner of its own.
    pub(super) owners: Vec<Owner>,
}

impl Task {
    /// Works until `over`, and once more after that.
    pub(super) async fn run(mut self, over: Instant) {
        loop {
            let is_last = Instant::now() >= over;
            self.section(is_last).await;
            if is_last {
                return;
            }
            let time = self.random.u64(..40);
            pass(Duration::from_millis(time)).await;
        }
    }

    fn choose(&mut self) -> (Wanted, Lock) {
        let lease = Duration::from_millis(self.random.u64(600..3_000));
        let all = Shape::MAX_LIMIT;
        let (name, permits, limit, lock) = match self.random.u32(..10) {
            0..6 => ("mutex", 1, 1, self.tenure.lock("mutex")),
            6 => ("readers", all, all, self.tenure.rwlock("readers").writer()),
            7 => ("readers", 1, all, self.tenure.rwlock("readers").reader()),
            _ => {
                let permits = self.random.u32(1..=PERMITS);
                let semaphore = self.tenure.semaphore("permits", PERMITS);
                ("permits", permits, PERMITS, semaphore.permits(permits))
            }
        };
        let lock = match self.random.u32(..6) {
            0 => lock.fixed_lease(lease),
            1 => lock.lease(lease).fair(),
            2 => lock.lease(lease).note("a note"),
            3 => lock.lease(lease).at_least(Duration::from_millis(self.random.u64(..100))),
            _ => lock.lease(lease),
        };
        let lock = match self.random.choice(&self.owners) {
            Some(owner) if self.random.u32(..4) == 0 => lock.owner(*owner).count_locally(),
            Some(owner) => lock.owner(*owner),
            None => lock,
        };
        (Wanted { name, permits, limit }, lock)
    }

    async fn section(&mut self, is_last: bool) {
        if self.random.u32(..4) == 0 && self.adopt().await {
            return;
        }
        let (wanted, lock) = self.choose();
        match self.acquire(&lock, is_last).await {
            Ok(Some(guard)) => {
                let number = guarded(&self.judge).granted(self.number, wanted, &guard);
                self.hold(wanted, number, guard).await;
            }
            Ok(None) => guarded(&self.judge).counts.refused += 1,
            Err(Error::TimedOut { .. }) => guarded(&self.judge).counts.refused += 1,
            // Another task of the owner has fewer permits.
            Err(Error::Upgrade { .. }) if !self.owners.is_empty() => {
                guarded(&self.judge).counts.refused += 1;
            }
            Err(Error::Unreachable { .. } | Error::Unknown { .. }) => {
                guarded(&self.judge).counts.failed += 1;
            }
            Err(error) => guarded(&self.judge).violated(format!("{}: {error}", wanted.name)),
        }
    }

    /// Acquires a lock in one of several ways; none if it is not acquired.
    async fn acquire(&mut self, lock: &Lock, is_last: bool) -> Result<Option<Guard>, Error> {
        let time = Duration::from_millis(self.random.u64(1..4_000));
        match self.random.u32(..8) {
            // Every waiter is served in the end.
            _ if is_last => lock.acquire().await.map(Some),
            0 => lock.try_acquire().await,
            1..5 => {
                let asked = Instant::now();
                let result = lock.acquire_within(time).await;
                let late = asked.elapsed().saturating_sub(time);
                if late > LATE {
                    let wrong = format!("an acquire returned {late:?} after its time (I7)");
                    guarded(&self.judge).violated(wrong);
                }
                result.map(Some)
            }
            5 | 6 => match timeout(time / 8, lock.acquire()).await {
                Ok(result) => result.map(Some),
                Err(_) => {
                    guarded(&self.judge).counts.dropped += 1;
                    Ok(None)
                }
            },
            _ => lock.acquire().await.map(Some),
        }
    }

    /// Adopts a lock that a task of any client has detached. False if there is none.
    async fn adopt(&mut self) -> bool {
        let Some((wanted, handle)) = guarded(&self.judge).handles.pop() else { return false };
        match self.tenure.adopt(handle).await {
            Ok(guard) => {
                let number = guarded(&self.judge).adopted(self.number, wanted, &guard);
                self.hold(wanted, number, guard).await;
            }
            Err(Error::Lost(_) | Error::Unreachable { .. } | Error::Unknown { .. }) => {}
            Err(error) => guarded(&self.judge).violated(format!("{}: {error}", wanted.name)),
        }
        true
    }

    async fn hold(&mut self, mut wanted: Wanted, number: u64, mut guard: Guard) {
        self.work(&guard).await;
        if wanted.name == "readers" && wanted.permits > 1 && self.random.u32(..3) == 0 {
            guarded(&self.judge).downgraded(wanted.name, number);
            wanted.permits = 1;
            guard = WriteGuard(guard).downgrade().await;
            self.work(&guard).await;
        }
        self.end(wanted, number, guard).await;
    }

    async fn work(&mut self, guard: &Guard) {
        let time = match self.random.u32(..10) {
            0 => self.random.u64(..5_000),
            1..4 => self.random.u64(..300),
            _ => self.random.u64(..10),
        };
        let work = pass(Duration::from_millis(time));
        match self.random.bool() {
            true => drop(guard.protect(work).await),
            false => work.await,
        }
    }

    async fn end(&mut self, wanted: Wanted, number: u64, guard: Guard) {
        guarded(&self.judge).released(wanted.name, number);
        match self.random.u32(..4) {
            0 => drop(guard),
            1 => {
                if let Ok(handle) = guard.detach().await {
                    match self.random.bool() {
                        true => guarded(&self.judge).handles.push((wanted, handle)),
                        false => drop(self.tenure.release(&handle).await),
                    }
                }
            }
            _ => drop(guard.release().await),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "simulated time is to pass")]
pub(super) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
