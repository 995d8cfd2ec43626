//! The checker: it keeps its own account of every lock, from outcomes and wake-ups alone, and reports which
//! promise a table broke.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::operation::{self, Lock, Operation, millis};
use super::account::{Account, Hold};
use super::*;
use crate::core::fence::Fence;
use crate::core::lease::Lease;
use crate::core::shape::Kind;
use crate::engine::{Grant, Queueing};
use crate::info::About;
use crate::owner::{Entry, Owner};

pub(super) struct Checker<S> {
    subject: S,
    now: Now,
    owners: Vec<Owner>,
    about: Arc<About>,
    accounts: HashMap<Lock, Account>,
    last_fence: u64,
}

pub(super) type Verdict<T = ()> = Result<T, String>;

impl<S: Subject> Default for Checker<S> {
    fn default() -> Self {
        let start = Moment::from_micros(1_700_000_000_000_000);
        Self {
            subject: S::default(),
            now: Now { clock: Moment::from_micros(1_000_000), wall: start },
            owners: (0..5).map(|_| Owner::new()).collect(),
            about: Arc::new(About::this_process()),
            accounts: HashMap::new(),
            last_fence: 0,
        }
    }
}

impl<S: Subject> Checker<S> {
    /// Performs an operation, checks its outcome, performs it again, and checks that nothing has changed.
    pub(super) fn perform(&mut self, operation: &Operation) -> Verdict {
        self.forget_ended();
        match *operation {
            Operation::Acquire { lock, owner, number, lease, queue, proposal } => {
                let queue = queue.map(|queue| Queueing {
                    heartbeat: millis(queue.heartbeat),
                    claim: millis(queue.claim),
                    fences: queue.fences,
                });
                let request = AcquireRequest {
                    name: LockName::new(lock.name()).unwrap(),
                    entry: self.entry(owner, number),
                    shape: lock.shape(owner, self.entry(owner, number).number),
                    lease: Lease::new(millis(lease)).unwrap(),
                    about: self.about.clone(),
                    queue,
                    proposal: operation::proposal(proposal, self.last(), self.now.wall),
                };
                self.acquire(lock, &request)?;
            }
            Operation::Renew { lock, owner, number, lease, commit } => {
                let commit = commit.map(|it| it.fence(self.last(), self.now.wall));
                let entry = self.entry(owner, number);
                self.renew(lock, entry, lease, commit)?;
            }
            Operation::Release { lock, owner, number, linger, keep } => {
                let name = LockName::new(lock.name()).unwrap();
                let entry = self.entry(owner, number);
                let (linger, keep) = (millis(linger), keep.into());
                self.release(
                    lock,
                    &ReleaseRequest { linger, keep, ..ReleaseRequest::new(name, entry) },
                )?;
            }
            Operation::Cancel { lock, owner, number } => {
                self.cancel(lock, self.entry(owner, number))?;
            }
            Operation::Force { lock, owner } => self.force(lock, owner)?,
            Operation::Inspect { lock } => {
                let mut effects = Effects::new();
                let name = LockName::new(lock.name()).unwrap();
                self.subject.table().inspect(&name, self.now, &mut effects);
                self.hear(lock, effects)?;
            }
            Operation::Pass { millis: time, wall_jump } => {
                self.now.clock = self.now.clock + millis(time);
                let wall = self.now.wall.as_micros().saturating_add_signed(wall_jump.into());
                self.now.wall = Moment::from_micros(wall + u64::from(time) * 1000);
            }
        }
        self.forget_ended();
        Ok(())
    }

    /// Lets every lease and heartbeat end, and counts the locks that are left.
    pub(super) fn wind_up(&mut self) -> usize {
        self.now.clock = self.now.clock + Duration::from_secs(10);
        let everything = ListRequest { prefix: String::new(), limit: usize::MAX };
        let table = self.subject.table();
        table.list(&everything, self.now, &mut Effects::new());
        table.locks.len()
    }

    fn acquire(&mut self, lock: Lock, request: &AcquireRequest) -> Verdict {
        let mut effects = Effects::new();
        let account = self.accounts.entry(lock).or_default();
        let must_repair =
            account.must_repair(request, Fence::from_value(self.last_fence), self.now.wall);
        let limit_of_repair = account.limit_for(request);
        let limit_before = account.widen(request);
        let outcome = self.subject.acquire(request, self.now, &mut effects);
        let is_granted = matches!(outcome, Acquired::Granted(_));
        ensure(is_granted || !must_repair, "a holder was refused the repair of its hold")?;
        account.bury_dead(self.now.clock);
        let is_next = account.place(request) == 0;
        let later =
            proposals::served_after(request, &outcome, is_next, self.now.wall, &mut effects);
        self.hear(lock, effects)?;
        let (now, entry) = (self.now.clock, request.entry);
        let account = self.accounts.entry(lock).or_default();
        match &outcome {
            Acquired::Ahead { .. } => account.keep_limit(limit_before),
            _ if must_repair => account.keep_limit(limit_of_repair),
            _ => account.set_limit(request, limit_before),
        }
        let (known, wall) = (Fence::from_value(self.last_fence), self.now.wall);
        match &outcome {
            Acquired::Granted(grant) => self.granted(lock, request, grant)?,
            Acquired::Outdated { last } => account.judge_outdated(request, *last, known, wall)?,
            Acquired::Ahead { clock } => account.judge_ahead(request, *clock, wall)?,
            Acquired::Queued(_) | Acquired::Busy => {
                account.judge_refusal(request)?;
                if let (Acquired::Queued(_), Some(queue)) = (&outcome, request.queue) {
                    account.wait(request, now + queue.heartbeat);
                }
            }
            Acquired::Upgrade { held } => {
                let hold = account.hold_of(entry.owner).ok_or("an upgrade of nothing")?;
                ensure(hold.permits == *held, "a wrong count of permits")?;
            }
            Acquired::Mismatch { .. } => return Err("no kinds were mixed".into()),
        }
        self.hear(lock, later)?;
        self.check_repeats(lock, |subject, now, effects| {
            let again = subject.acquire(request, now, effects);
            ensure(same_answer(&again, &outcome), "I5: another answer to the same acquire")
        })
    }

    fn granted(&mut self, lock: Lock, request: &AcquireRequest, grant: &Grant) -> Verdict {
        let (entry, until) = (request.entry, self.now.clock + grant.lease);
        let is_short = grant.lease < request.lease.duration();
        let account = self.accounts.entry(lock).or_default();
        account.queue.retain(|waiting| waiting.entry != entry);
        if let Some(hold) = account.hold_of(entry.owner) {
            ensure(hold.fence == grant.fence, "I4: a re-entry changed the fence")?;
            let permits = request.shape.permits();
            ensure(permits <= hold.permits, "I1: granted more permits than the owner holds")?;
            let is_of_others = asks_again(request) && hold.numbers != [entry.number];
            ensure(!is_short || is_of_others, "I2: a short lease")?;
            ensure(!is_of_others || until <= hold.until, "I7: extended by a waiter")?;
            hold.enter(entry.number);
            hold.until = hold.until.max(until);
            return Ok(());
        }
        ensure(!is_short, "I2: a short lease")?;
        let is_repair = request.proposal.is_some_and(|proposal| proposal.is_repair);
        ensure(is_repair || account.place(request) == 0, "I10: overtook the waiters")?;
        account.hold(Hold::new(entry, request.shape.permits(), until, grant))?;
        proposals::judge_grant(request, grant, self.now.wall)?;
        if is_repair && grant.fence == self.last() {
            return Ok(());
        }
        self.check_fence(grant)
    }

    fn renew(&mut self, lock: Lock, entry: Entry, lease: u16, commit: Option<Fence>) -> Verdict {
        let lease = Lease::new(millis(lease)).unwrap();
        let renewal = Renewal { name: LockName::new(lock.name()).unwrap(), entry, lease, commit };
        let mut effects = Effects::new();
        let outcome = self.subject.renew(&renewal, self.now, &mut effects);
        self.hear(lock, effects)?;
        let until = self.now.clock + lease.duration();
        let hold = self.accounts.entry(lock).or_default().hold_of(entry.owner);
        match hold.filter(|hold| hold.numbers.contains(&entry.number)) {
            Some(hold) => {
                ensure(outcome == Renewed::Extended, "a holder was refused its renewal")?;
                hold.until = hold.until.max(until);
                hold.fence = commit.map_or(hold.fence, |fence| hold.fence.max(fence));
                let committed = commit.map_or(0, Fence::value);
                self.last_fence = self.last_fence.max(committed);
            }
            None => ensure(outcome == Renewed::NotHeld, "I3: renewed a lock that was not held")?,
        }
        self.check_repeats(lock, |subject, now, effects| {
            let again = subject.renew(&renewal, now, effects);
            ensure(again == outcome, "I5: another answer to the same renewal")
        })
    }

    fn release(&mut self, lock: Lock, request: &ReleaseRequest) -> Verdict {
        let ReleaseRequest { entry, linger, keep, .. } = *request;
        let mut effects = Effects::new();
        let outcome = self.subject.release(request, self.now, &mut effects);
        // The entry may have been waiting, and be served, with the owner's other entries, before
        // it is released in the same step.
        let is_served = |(_, wakeup): &(ClientId, Wakeup)| match wakeup {
            Wakeup::Granted { entry: it, .. } | Wakeup::Sooner { entry: it, .. } => {
                it.owner == entry.owner
            }
            _ => false,
        };
        let after = effects.iter().rposition(is_served).map_or(0, |index| index + 1);
        let later = effects.split_off(after);
        self.hear(lock, effects)?;
        let account = self.accounts.entry(lock).or_default();
        if outcome != ReleaseOutcome::NotHeld {
            account.revive(entry.owner);
        }
        let was_held = match keep {
            0 => account.leave(entry, linger, self.now.clock),
            keep => account.give_back(entry, keep),
        };
        self.hear(lock, later)?;
        let expected = match was_held {
            Some(remaining) => ReleaseOutcome::Released { remaining },
            None => ReleaseOutcome::NotHeld,
        };
        ensure(outcome == expected, "I3: released a lock that was not held, or not one that was")?;
        self.check_repeats(lock, |subject, now, effects| {
            let again = subject.release(request, now, effects);
            let expected = if keep == 0 { ReleaseOutcome::NotHeld } else { again };
            ensure(again == expected, "I5: released twice")
        })
    }

    fn cancel(&mut self, lock: Lock, entry: Entry) -> Verdict {
        let request = CancelRequest { name: LockName::new(lock.name()).unwrap(), entry };
        let mut effects = Effects::new();
        self.subject.table().cancel(&request, self.now, &mut effects);
        let account = self.accounts.entry(lock).or_default();
        if account.queue.iter().any(|waiting| waiting.entry == entry) {
            account.queue.retain(|waiting| waiting.entry != entry);
        } else {
            account.leave(entry, Duration::ZERO, self.now.clock);
        }
        self.hear(lock, effects)?;
        self.check_repeats(lock, |subject, now, effects| {
            subject.table().cancel(&request, now, effects);
            Ok(())
        })
    }

    fn force(&mut self, lock: Lock, owner: Option<u8>) -> Verdict {
        let expected = owner.map(|owner| self.owners[usize::from(owner)]);
        let request = ForceRequest {
            name: LockName::new(lock.name()).unwrap(),
            expected,
            reason: "a test".into(),
            by: self.about.clone(),
        };
        let mut effects = Effects::new();
        let outcome = self.subject.table().force_release(&request, self.now, &mut effects);
        let is_meant = |hold: &&Hold| expected.is_none_or(|owner| hold.owner == owner);
        let account = self.accounts.entry(lock).or_default();
        let meant: Vec<_> = account.holds.iter().filter(is_meant).map(|hold| hold.owner).collect();
        let notified = effects.iter().filter(|(_, it)| matches!(it, Wakeup::Lost { .. })).count();
        // The fence is raised after the last loss, before waiters are served.
        let raises = matches!(effects.last(), Some((_, Wakeup::Lost { .. })));
        self.hear(lock, effects)?;
        if raises {
            self.last_fence = self.now.wall.as_micros().max(self.last_fence + 1);
        }
        let taken = match outcome {
            ForceOutcome::Released(owners) => owners,
            ForceOutcome::NotHeld => Vec::new(),
        };
        ensure(taken.len() == notified, "not exactly the former holders were notified")?;
        ensure(meant.iter().all(|owner| taken.contains(owner)), "a holder was not forced out")
    }

    /// Applies the wake-ups: each must be for the first live waiter (I10).
    fn hear(&mut self, lock: Lock, effects: Effects) -> Verdict {
        let now = self.now.clock;
        for (_, wakeup) in effects {
            let account = self.accounts.entry(lock).or_default();
            let (entry, grant) = match wakeup {
                Wakeup::Granted { entry, grant, .. } => (entry, grant),
                Wakeup::Lost { owner, .. } => {
                    account.lose(owner)?;
                    continue;
                }
                Wakeup::Sooner { entry, .. } if account.is_dismissed(entry) => {
                    account.queue.retain(|waiting| waiting.entry != entry);
                    continue;
                }
                Wakeup::Sooner { entry, .. } => {
                    let first = account.queue.first().map(|waiting| waiting.entry);
                    ensure(first == Some(entry), "another than the first waiter was notified")?;
                    continue;
                }
                Wakeup::Freed { .. } => return Err("a table has a queue".into()),
                Wakeup::Missed | Wakeup::MissedIn(_) | Wakeup::Returned => continue,
            };
            let until = now + grant.lease;
            if let Some(hold) = account.hold_of(entry.owner) {
                ensure(
                    hold.fence == grant.fence,
                    "I4: another entry of the owner has another fence",
                )?;
                hold.enter(entry.number);
                ensure(!account.exceeds(entry), "I1: granted more permits than the owner holds")?;
                account.queue.retain(|waiting| waiting.entry != entry);
                continue;
            }
            account.bury_dead(now);
            ensure(!account.queue.is_empty(), "a grant without a waiter")?;
            let first = account.queue.remove(0);
            ensure(first.entry == entry, "I10: another than the first waiter was served")?;
            account.hold(Hold::new(entry, first.permits, until, &grant))?;
            self.check_fence(&grant)?;
        }
        self.accounts.entry(lock).or_default().bury_dead(now);
        Ok(())
    }

    fn last(&self) -> Fence {
        Fence::from_value(self.last_fence)
    }

    fn check_fence(&mut self, grant: &Grant) -> Verdict {
        let fence = grant.fence.value();
        ensure(fence > self.last_fence, "I4: a fence did not grow")?;
        self.last_fence = fence + u64::from(grant.fences) - 1;
        Ok(())
    }

    /// Performs the same again at the same moment: nothing may change.
    fn check_repeats(
        &mut self,
        lock: Lock,
        again: impl FnOnce(&mut S, Now, &mut Effects) -> Verdict,
    ) -> Verdict {
        let name = LockName::new(lock.name()).unwrap();
        let mut effects = Effects::new();
        let before = self.subject.table().inspect(&name, self.now, &mut effects);
        again(&mut self.subject, self.now, &mut effects)?;
        let after = self.subject.table().inspect(&name, self.now, &mut effects);
        ensure(before == after, "I5: sent twice, it acted twice")?;
        ensure(effects.is_empty(), "I5: sent twice, it caused a second wake-up")
    }

    fn forget_ended(&mut self) {
        let now = self.now.clock;
        for account in self.accounts.values_mut() {
            account.ended.extend(account.holds.extract_if(.., |hold| hold.until <= now));
        }
    }

    /// Some owners enter once, others repeatedly.
    fn entry(&self, owner: u8, number: u8) -> Entry {
        let number = if owner.is_multiple_of(2) { 0 } else { number + 1 };
        Entry { owner: self.owners[usize::from(owner)], number: number.into() }
    }
}

/// The same grant or the same kind of refusal; a standing may be more exact the second time.
fn same_answer(one: &Acquired, other: &Acquired) -> bool {
    match (one, other) {
        (Acquired::Granted(one), Acquired::Granted(other)) => one.fence == other.fence,
        _ => one == other,
    }
}

pub(super) fn ensure(holds: bool, otherwise: &str) -> Verdict {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

/// A waiter that asks a node of a quorum once more, and may be one of several of its owner.
fn asks_again(request: &AcquireRequest) -> bool {
    let is_fenced = !matches!(request.shape.kind(), Kind::Latch | Kind::Barrier);
    let is_waiter = is_fenced && request.queue.is_some() && request.entry.number != 0;
    is_waiter && request.proposal.is_some_and(|it| it.is_repeated && !it.is_repair)
}
