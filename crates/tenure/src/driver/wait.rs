//! One acquire, from the first attempt to the guard.
//!
//! The first attempt also joins the store's queue, so a waiter costs no second trip. An attempt that is
//! in flight when the caller gives up is finished in the background and undone (I8).

use std::pin::pin;
use std::sync::Arc;

use super::flight::{Flight, no_answer, unproposed};
use super::serve::Asked;
use super::wait_group::Ticket;
use super::{AFTER_ERROR, Driver, HEARTBEAT, Held, Spec, pass};
use crate::clock;
use crate::core::backoff::Delays;
use crate::core::lease;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::engine::{Acquired, Answer, Engine, Queueing};
use crate::error::{Error, StoreError};
use crate::group::Group;
use crate::guard::Guard;
use crate::owner::Entry;
use crate::telemetry::{self, spans};
use crate::wait::Wait;

impl Driver {
    /// Acquires, and waits as `wait` says.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        spec: &Arc<Spec>,
        wait: &Wait,
    ) -> Result<Guard, Error> {
        // A task that acquires in a loop must yield to others, also if it never waits.
        tokio::task::coop::consume_budget().await;
        self.check()?;
        self.check_options(spec)?;
        let started = clock::now();
        let end = wait.within.map_or(Moment::NEVER, |time| started + time);
        if let Some(guard) = self.enter_here(spec)? {
            return self.confirm(spec, guard, end).await;
        }
        let polls = wait.attempts.is_some() || wait.retry.is_some();
        let guard = if polls {
            self.acquire_by_attempts(spec, wait, started, end).await?
        } else if spec.shares_reading() {
            return self.acquire_reading(spec, started, end).await;
        } else {
            self.acquire_in_queue(spec, started, end).await?
        };
        Ok(self.admit_others(spec, guard))
    }

    /// Enters a hold of this process without a trip to the store, if that is possible.
    fn enter_here(&self, spec: &Spec) -> Result<Option<Guard>, Error> {
        let guard = self.reentries.enter(spec)?;
        Ok(guard.or_else(|| self.shared_reads.enter(spec, &self.reentries)))
    }

    /// A new hold, which other tasks of this process may enter as its options allow.
    fn admit_others(&self, spec: &Spec, guard: Guard) -> Guard {
        let guard = self.reentries.count_if_wanted(spec, guard);
        self.shared_reads.open(spec, guard, &self.reentries)
    }

    /// Ends one counted entry into a hold. True if it was the last, and the hold itself must end.
    pub(crate) fn leave_locally(&self, held: &Arc<Held>) -> bool {
        let is_last = self.reentries.leave(held);
        if is_last {
            self.shared_reads.close(held);
        }
        is_last
    }

    /// One attempt, without waiting.
    pub(crate) async fn try_acquire(
        self: &Arc<Self>,
        spec: &Arc<Spec>,
    ) -> Result<Option<Guard>, Error> {
        tokio::task::coop::consume_budget().await;
        self.check()?;
        self.check_options(spec)?;
        if let Some(guard) = self.enter_here(spec)? {
            return self.confirm(spec, guard, Moment::NEVER).await.map(Some);
        }
        let end = clock::now();
        match self.attempt(spec, spec.entry()?, None, end).await? {
            Attempt::Granted(guard) => {
                let guard = self.confirm(spec, guard, Moment::NEVER).await?;
                Ok(Some(self.admit_others(spec, guard)))
            }
            Attempt::Busy | Attempt::Queued { .. } => Ok(None),
        }
    }

    /// One attempt at each of several locks, in one trip where the engine can. An attempt that failed
    /// counts as not granted, and is undone: the acquire that follows, with retries, reports the error. The caller has
    /// the holds [confirmed](Self::confirm).
    pub(crate) async fn try_all(self: &Arc<Self>, specs: &[Arc<Spec>]) -> Vec<Option<Guard>> {
        let entries: Result<Vec<_>, _> = specs.iter().map(|spec| spec.entry()).collect();
        let checked = specs.iter().try_for_each(|spec| self.check_options(spec));
        let (Ok(entries), Ok(())) = (entries, self.check().and(checked)) else {
            return specs.iter().map(|_| None).collect();
        };
        let asked = self.about_to_ask();
        let entered = specs.iter().zip(&entries);
        let requests = entered.map(|(spec, &entry)| spec.request(entry, None)).collect();
        let answers = self.engine.acquire_all(requests).into_iter();
        // All are in flight before the first is awaited, and all are undone if this future is dropped.
        let flights: Vec<_> = specs
            .iter()
            .zip(entries)
            .zip(answers)
            .map(|((spec, entry), answer)| (spec, entry, Flight::new(self, spec, entry, answer)))
            .collect();
        let mut guards = Vec::with_capacity(flights.len());
        for (spec, entry, flight) in flights {
            guards.push(
                match flight.await.map(|acquired| self.accept(spec, acquired, entry, asked)) {
                    Ok(Ok(Attempt::Granted(guard))) => Some(guard),
                    Ok(_) => None,
                    Err(error) => {
                        if error.is_unknown() {
                            self.undo(spec, entry);
                        }
                        None
                    }
                },
            );
        }
        guards
    }

    pub(super) async fn acquire_in_queue(
        self: &Arc<Self>,
        spec: &Arc<Spec>,
        started: Moment,
        end: Moment,
    ) -> Result<Guard, Error> {
        let guard = self.wait_in_queue(spec, started, end).await?;
        self.confirm(spec, guard, end).await
    }

    async fn wait_in_queue(
        self: &Arc<Self>,
        spec: &Arc<Spec>,
        started: Moment,
        end: Moment,
    ) -> Result<Guard, Error> {
        let ticket = match self.join(spec) {
            Some(ticket) => ticket,
            None => {
                let entry = spec.entry()?;
                match self.attempt(spec, entry, Some(self.queueing(spec)), end).await? {
                    Attempt::Granted(guard) => return Ok(guard),
                    Attempt::Queued { standing, asked } => {
                        self.open_group(spec, entry, standing, asked)
                    }
                    Attempt::Busy => return Err(self.over(&spec.name, started)),
                }
            }
        };
        let _waiting = Waiting::of(spec.group);
        let waited = spans::wait(&spec.name).run(pin!(self.wait_in(ticket, end))).await;
        let waited = waited.unwrap_or_else(|| Err(self.over(&spec.name, started)));
        waited.map(Guard::queued)
    }

    async fn acquire_by_attempts(
        self: &Arc<Self>,
        spec: &Arc<Spec>,
        wait: &Wait,
        started: Moment,
        end: Moment,
    ) -> Result<Guard, Error> {
        let entry = spec.entry()?;
        let mut delays = wait.retry.clone().unwrap_or_default().delays(entry_seed(entry));
        loop {
            match self.attempt(spec, entry, None, end).await {
                Ok(Attempt::Granted(guard)) => return self.confirm(spec, guard, end).await,
                Ok(Attempt::Busy | Attempt::Queued { .. }) => {}
                // The store has answered before: the lock was busy until the time was over. A grant of
                // this attempt is given back.
                Err(Error::Unknown { .. }) if delays.attempts() > 0 && clock::now() >= end => {
                    return Err(self.over(&spec.name, started));
                }
                Err(error) => return Err(error),
            }
            let next = clock::now() + delays.next();
            let attempts = delays.attempts();
            if wait.attempts.is_some_and(|most| attempts >= most) {
                return Err(Error::Busy { name: spec.name.clone(), attempts });
            }
            self.alarm(next.min(end)).await;
            if next >= end {
                return Err(self.over(&spec.name, started));
            }
        }
    }

    /// Asks the store, and retries after errors until it answers, or patience or the time is over.
    async fn attempt(
        self: &Arc<Self>,
        spec: &Arc<Spec>,
        entry: Entry,
        queue: Option<Queueing>,
        end: Moment,
    ) -> Result<Attempt, Error> {
        let give_up = end.min(clock::now() + self.settings.patience);
        let mut retries: Option<Retries> = None;
        loop {
            self.check()?;
            let asked = self.about_to_ask();
            let sent = asked.sent;
            let request = spec.request(entry, queue);
            let flight = Flight::new(self, spec, entry, self.engine.acquire(request));
            // A single attempt waits for its answer, which the engine bounds; waiting has a deadline.
            let end = if end > sent { end } else { Moment::NEVER };
            let too_late = || Err(StoreError::unknown("no answer within the time allowed"));
            match self.before(end, flight).await.unwrap_or_else(too_late) {
                Ok(acquired) => return self.accept(spec, acquired, entry, asked),
                Err(error) => {
                    let is_lasting = error.is_lasting();
                    let retries = retries.get_or_insert_with(Retries::default);
                    let next = retries.after(error);
                    if is_lasting || next >= give_up {
                        return Err(self.give_up(spec, entry, retries.last.take()));
                    }
                    let cleanup = Flight::new(self, spec, entry, no_answer());
                    self.pause(next, asked.returned).await;
                    cleanup.disarm();
                }
            }
        }
    }

    fn accept(
        self: &Arc<Self>,
        spec: &Arc<Spec>,
        acquired: Acquired,
        entry: Entry,
        asked: Asked,
    ) -> Result<Attempt, Error> {
        match acquired {
            Acquired::Granted(grant) => {
                let deadline = lease::deadline(asked.sent, grant.lease);
                Ok(Attempt::Granted(self.hold(spec, entry, grant, deadline, asked.losses)))
            }
            Acquired::Queued(standing) => Ok(Attempt::Queued { standing, asked }),
            Acquired::Busy => Ok(Attempt::Busy),
            Acquired::Mismatch { kind, limit } => {
                Err(Error::Mismatch { name: spec.name.clone(), kind, limit })
            }
            Acquired::Upgrade { held } => Err(Error::Upgrade { name: spec.name.clone(), held }),
            Acquired::Outdated { .. } | Acquired::Ahead { .. } => Err(unproposed(&spec.name)),
        }
    }

    /// Reports the last error; an attempt without an answer is undone (I6).
    fn give_up(self: &Arc<Self>, spec: &Spec, entry: Entry, last: Option<StoreError>) -> Error {
        let error = last.unwrap_or_else(|| StoreError::refused("the store gave no reason"));
        if error.is_unknown() {
            self.undo(spec, entry);
        }
        Error::from_store(&spec.name, "acquire", error)
    }

    fn queueing(&self, spec: &Spec) -> Queueing {
        let claim = self.claim().unwrap_or(spec.lease.duration());
        let fences = if spec.is_shareable() { 1 + u32::from(pass::PASSES) } else { 1 };
        Queueing { heartbeat: HEARTBEAT, claim, fences }
    }

    pub(super) fn request_again(&self, spec: &Spec, entry: Entry) -> Answer<Acquired> {
        self.engine.acquire(spec.request(entry, Some(self.queueing(spec))))
    }

    /// Why the wait is over without a grant: its time, unless the driver has ended, which wakes all that wait for a time.
    fn over(&self, name: &LockName, started: Moment) -> Error {
        self.check().err().unwrap_or_else(|| timed_out(name, started))
    }

    /// The guard, or none if the time is over first. A guard that arrives at the last moment is not
    /// discarded.
    async fn wait_in(&self, mut ticket: Ticket, end: Moment) -> Option<Result<Guard, Error>> {
        let in_time = self.before(end, ticket.guard()).await;
        in_time.flatten().or_else(|| ticket.last_chance())
    }
}

/// A task that waits in the queue, as metrics count it.
struct Waiting(Group);

impl Waiting {
    fn of(group: Group) -> Self {
        telemetry::waiting(group, 1.0);
        Self(group)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        telemetry::waiting(self.0, -1.0);
    }
}

enum Attempt {
    Granted(Guard),
    Queued { standing: crate::engine::Standing, asked: Asked },
    Busy,
}

/// The errors so far of one attempt.
struct Retries {
    last: Option<StoreError>,
    delays: Delays,
}

impl Default for Retries {
    fn default() -> Self {
        Self { last: None, delays: AFTER_ERROR.delays(clock::now().as_micros()) }
    }
}

impl Retries {
    /// Notes an error, and returns when to retry.
    fn after(&mut self, error: StoreError) -> Moment {
        self.last = Some(error.after(self.last.as_ref()));
        clock::now() + self.delays.next()
    }
}

pub(super) fn timed_out(name: &LockName, started: Moment) -> Error {
    Error::TimedOut { name: name.clone(), waited: clock::now().since(started) }
}

/// Spreads the delays of different entries.
fn entry_seed(entry: Entry) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(entry)
}
