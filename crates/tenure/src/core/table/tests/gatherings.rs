//! R27: latches and barriers, checked against a model of their own: which waiters pass, and when.

mod book;

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};

use super::super::operation::{self, Lock, Queue, millis};
use super::checker::{Verdict, ensure};
use super::*;
use crate::core::fence::Fence;
use crate::core::lease::Lease;
use crate::engine::Queueing;
use crate::info::About;
use crate::owner::{Entry, Owner};
use book::Book;

/// One latch or barrier, and its state as known from outcomes and wake-ups.
struct Gathering<S> {
    subject: S,
    lock: Lock,
    now: Now,
    owners: Vec<Owner>,
    about: Arc<About>,
    book: Book,
}

impl<S: Subject> Gathering<S> {
    fn new(lock: Lock) -> Self {
        let wall = Moment::from_micros(1_700_000_000_000_000);
        Self {
            subject: S::default(),
            lock,
            now: Now { clock: Moment::from_micros(1_000_000), wall },
            owners: (0..5).map(|_| Owner::new()).collect(),
            about: Arc::new(About::this_process()),
            book: Book::default(),
        }
    }

    fn perform(&mut self, operation: &Operation) -> Verdict {
        if !matches!(operation, Operation::Pass { .. }) {
            self.book.settle(self.now.clock);
        }
        match *operation {
            Operation::Acquire { owner, number, lease, queue, proposal, .. } => {
                // Ignored: the fences of latches and barriers have no meaning.
                let last = Fence::from_value(self.now.wall.as_micros());
                let proposal = operation::proposal(proposal, last, self.now.wall);
                let request = self.request(owner, number, lease, queue);
                let request = AcquireRequest { proposal, ..request };
                self.acquire(&request)
            }
            Operation::Renew { owner, number, lease, .. } => {
                self.renew(self.entry(owner, number), lease)
            }
            Operation::Release { owner, number, linger, keep, .. } => {
                let (name, entry) = (self.name(), self.entry(owner, number));
                let (linger, keep) = (millis(linger), keep.into());
                self.release(&ReleaseRequest { linger, keep, ..ReleaseRequest::new(name, entry) })
            }
            Operation::Cancel { owner, number, .. } => self.cancel(self.entry(owner, number)),
            Operation::Force { owner, .. } => self.force(owner),
            Operation::Inspect { .. } => self.repeat(|_, _, _| Ok(())),
            Operation::Pass { millis: time, .. } => {
                self.now.clock = self.now.clock + millis(time);
                Ok(())
            }
        }
    }

    fn acquire(&mut self, request: &AcquireRequest) -> Verdict {
        let mut effects = Effects::new();
        let outcome = self.subject.acquire(request, self.now, &mut effects);
        let passed = passed(&effects)?;
        match self.lock {
            Lock::Latch => self.book.judge_latch(request, &outcome, &passed, self.now.clock)?,
            _ => self.book.judge_barrier(request, &outcome, &passed, self.now.clock)?,
        }
        self.repeat(|subject, now, effects| {
            let again = subject.acquire(request, now, effects);
            let is_same = match (&again, &outcome) {
                (Acquired::Granted(one), Acquired::Granted(other)) => one.fence == other.fence,
                _ => again == outcome,
            };
            ensure(is_same, "I5: another answer to the same acquire")
        })
    }

    fn renew(&mut self, entry: Entry, lease: u16) -> Verdict {
        let lease = Lease::new(millis(lease)).unwrap();
        let renewal = Renewal { name: self.name(), entry, lease, commit: None };
        let mut effects = Effects::new();
        let outcome = self.subject.renew(&renewal, self.now, &mut effects);
        let expected = match self.book.extend(entry, self.now.clock + lease.duration()) {
            true => Renewed::Extended,
            false => Renewed::NotHeld,
        };
        ensure(outcome == expected, "I3: renewed a lease that had ended, or not one that had not")?;
        ensure(effects.is_empty(), "a renewal opened it")?;
        self.repeat(|subject, now, effects| {
            ensure(
                subject.renew(&renewal, now, effects) == outcome,
                "I5: another answer to the same renewal",
            )
        })
    }

    fn release(&mut self, request: &ReleaseRequest) -> Verdict {
        let mut effects = Effects::new();
        let outcome = self.subject.release(request, self.now, &mut effects);
        ensure(effects.is_empty(), "a release opened it")?;
        let is_released = outcome != ReleaseOutcome::NotHeld;
        let was_held = self.book.release(request, is_released, self.now.clock);
        ensure(
            is_released == was_held,
            "I3: released a lock that was not held, or not one that was",
        )?;
        self.repeat(|subject, now, effects| {
            let again = subject.release(request, now, effects);
            ensure(request.keep > 0 || again == ReleaseOutcome::NotHeld, "I5: released twice")
        })
    }

    fn cancel(&mut self, entry: Entry) -> Verdict {
        let request = CancelRequest { name: self.name(), entry };
        let mut effects = Effects::new();
        self.subject.table().cancel(&request, self.now, &mut effects);
        ensure(effects.is_empty(), "a cancel opened it")?;
        self.book.cancel(ReleaseRequest::new(request.name.clone(), entry), self.now.clock);
        self.repeat(|subject, now, effects| {
            subject.table().cancel(&request, now, effects);
            Ok(())
        })
    }

    fn force(&mut self, owner: Option<u8>) -> Verdict {
        let expected = owner.map(|owner| self.owners[usize::from(owner)]);
        let (name, by) = (self.name(), self.about.clone());
        let request = ForceRequest { name, expected, reason: "a test".into(), by };
        let mut effects = Effects::new();
        self.subject.table().force_release(&request, self.now, &mut effects);
        let taken = self.book.force(expected);
        let all_lost = effects.iter().all(|(_, it)| matches!(it, Wakeup::Lost { .. }));
        ensure(all_lost && effects.len() == taken, "not exactly the former holders were notified")?;
        self.repeat(|_, _, _| Ok(()))
    }

    /// Performs the same again at the same moment: nothing may change, and no wake-up follow.
    fn repeat(&mut self, again: impl FnOnce(&mut S, Now, &mut Effects) -> Verdict) -> Verdict {
        let (name, mut effects) = (self.name(), Effects::new());
        let before = self.subject.table().inspect(&name, self.now, &mut effects);
        again(&mut self.subject, self.now, &mut effects)?;
        let after = self.subject.table().inspect(&name, self.now, &mut effects);
        ensure(before == after, "I5: sent twice, it acted twice")?;
        ensure(effects.is_empty(), "I5: sent twice, it caused a second wake-up")
    }

    fn request(&self, owner: u8, number: u8, lease: u16, queue: Option<Queue>) -> AcquireRequest {
        let entry = self.entry(owner, number);
        AcquireRequest {
            name: self.name(),
            entry,
            shape: self.lock.shape(owner, entry.number),
            lease: Lease::new(millis(lease)).unwrap(),
            about: self.about.clone(),
            queue: queue.map(|queue| Queueing {
                heartbeat: millis(queue.heartbeat),
                claim: millis(queue.claim),
                fences: queue.fences,
            }),
            proposal: None,
        }
    }

    fn name(&self) -> LockName {
        LockName::new(self.lock.name()).unwrap()
    }

    /// Some owners enter once, others repeatedly.
    fn entry(&self, owner: u8, number: u8) -> Entry {
        let number = if owner.is_multiple_of(2) { 0 } else { number + 1 };
        Entry { owner: self.owners[usize::from(owner)], number: number.into() }
    }
}

/// The entries that have passed, in order.
fn passed(effects: &Effects) -> Verdict<Vec<(Entry, std::time::Duration)>> {
    let entry = |(_, wakeup): &(ClientId, Wakeup)| match wakeup {
        Wakeup::Granted { entry, grant, .. } => Ok((*entry, grant.lease)),
        other => Err(format!("an unexpected wake-up: {other:?}")),
    };
    effects.iter().map(entry).collect()
}

fn judge_gathering<S: Subject>(lock: Lock, operations: &[Operation]) -> Verdict {
    let mut gathering = Gathering::<S>::new(lock);
    operations.iter().try_for_each(|operation| gathering.perform(&operation.on(lock)))
}

/// 200 sequences, or as many as `PROPTEST_CASES` says.
fn fewer() -> Config {
    let cases = std::env::var("PROPTEST_CASES").map_or(200, |_| Config::default().cases);
    Config { cases, ..config() }
}

proptest! {
    #![proptest_config(fewer())]

    /// I1, I5, R27: waiters pass a latch exactly while it is counted down.
    #[test]
    fn a_latch_is_open_exactly_while_it_is_counted_down(operations in node_operations()) {
        judge_gathering::<Table>(Lock::Latch, &operations).map_err(TestCaseError::fail)?;
    }

    /// I1, I5, I10, R27: a barrier opens exactly when it has as many live parties as its limit.
    #[test]
    fn a_barrier_opens_exactly_when_all_are_there(operations in node_operations()) {
        judge_gathering::<Table>(Lock::Barrier, &operations).map_err(TestCaseError::fail)?;
    }
}

/// The model finds that a wrong table breaks this promise.
fn is_noticed<S: Subject>(lock: Lock, promise: &str) {
    let result = TestRunner::new(Config { cases: 5_000, ..config() }).run(&operations(), |it| {
        match judge_gathering::<S>(lock, &it) {
            Err(broken) if broken.starts_with(promise) => Err(TestCaseError::fail(broken)),
            _ => Ok(()),
        }
    });
    assert!(result.is_err(), "the model let a table pass that breaks {promise}");
}

#[test]
fn a_latch_that_opens_early_is_caught() {
    is_noticed::<mutants::OpensEarly>(Lock::Latch, "I1:");
}

#[test]
fn a_barrier_that_counts_the_dead_is_caught() {
    is_noticed::<mutants::CountsTheDead>(Lock::Barrier, "I1:");
}
