//! Random sequences of all operations, with time jumps, verified by a checker that sees only outcomes and
//! wake-ups. The checker itself is tested too: it must catch each of the wrong tables in [`mutants`].

mod account;
mod checker;
mod gatherings;
mod mutants;
mod proposals;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::operation::{Lock, Offer, Operation, Purpose, Queue, node_operations, operations};
use super::*;
use checker::Checker;

/// The table under test, or a wrong one.
pub(super) trait Subject: Default {
    fn table(&mut self) -> &mut Table;

    fn acquire(&mut self, request: &AcquireRequest, now: Now, effects: &mut Effects) -> Acquired {
        self.table().acquire(request, 1, now, effects)
    }

    fn renew(&mut self, renewal: &Renewal, now: Now, effects: &mut Effects) -> Renewed {
        self.table().renew(renewal, now, effects)
    }

    fn release(
        &mut self,
        request: &ReleaseRequest,
        now: Now,
        effects: &mut Effects,
    ) -> ReleaseOutcome {
        self.table().release(request, now, effects)
    }
}

impl Subject for Table {
    fn table(&mut self) -> &mut Table {
        self
    }
}

/// 2,000 sequences, or as many as `PROPTEST_CASES` says.
fn config() -> Config {
    let cases = std::env::var("PROPTEST_CASES").map_or(2_000, |_| Config::default().cases);
    Config { cases, failure_persistence: None, ..Config::default() }
}

fn judge<S: Subject>(operations: &[Operation]) -> Result<(), String> {
    let mut checker = Checker::<S>::default();
    operations.iter().try_for_each(|operation| checker.perform(operation))
}

proptest! {
    #![proptest_config(config())]

    /// I1, I3, I4, I5, I10 hold for every sequence of operations.
    #[test]
    fn every_sequence_keeps_the_promises(operations in operations()) {
        judge::<Table>(&operations).map_err(TestCaseError::fail)?;
    }

    /// The same on a node of a quorum, whose clients propose fences.
    #[test]
    fn every_sequence_on_a_node_keeps_the_promises(operations in node_operations()) {
        judge::<Table>(&operations).map_err(TestCaseError::fail)?;
    }

    /// After any sequence, when every lease and heartbeat has ended, the table is empty.
    #[test]
    fn nothing_is_left_at_the_end(operations in node_operations()) {
        let mut checker = Checker::<Table>::default();
        operations.iter().try_for_each(|it| checker.perform(it)).map_err(TestCaseError::fail)?;
        prop_assert_eq!(checker.wind_up(), 0);
    }
}

/// The clock is set back while a fence that was committed is far ahead. A waiter without a proposal gets the next fence by a
/// hand-over, which is the very fence that it then proposes, and is too far ahead to be granted on the spot.
#[test]
fn a_hand_over_is_not_taken_for_a_grant_of_its_proposal() {
    let acquire = |lock, owner, lease, queue, proposal| Operation::Acquire {
        lock,
        owner,
        number: 0,
        lease,
        queue,
        proposal,
    };
    let queue = Queue { heartbeat: 58, claim: 10, fences: 1 };
    let operations = [
        acquire(Lock::Mutex, 3, 10, None, None),
        acquire(Lock::ReadWrite, 0, 59, None, None),
        Operation::Renew {
            lock: Lock::Mutex,
            owner: 3,
            number: 0,
            lease: 10,
            commit: Some(Offer::AtTime(58_175_244)),
        },
        Operation::Pass { millis: 2, wall_jump: -1_883_756 },
        acquire(Lock::ReadWrite, 4, 10, Some(queue), None),
        Operation::Pass { millis: 57, wall_jump: 0 },
        acquire(Lock::ReadWrite, 4, 10, None, Some((Offer::AfterLast(1), Purpose::Repair))),
    ];
    assert_eq!(judge::<Table>(&operations), Ok(()));
}

/// A request raises the limit of a semaphore, which lets another entry of its owner in, and is refused as an upgrade then.
#[test]
fn a_request_that_raises_the_limit_for_another_entry_of_its_owner_has_set_it() {
    let acquire = |owner, number, queue| Operation::Acquire {
        lock: Lock::Semaphore,
        owner,
        number,
        lease: 10,
        queue,
        proposal: None,
    };
    let queue = Some(Queue { heartbeat: 29, claim: 10, fences: 1 });
    let cancel = Operation::Cancel { lock: Lock::Semaphore, owner: 2, number: 0 };
    let operations = [
        acquire(4, 0, None),
        acquire(2, 0, queue),
        acquire(1, 1, queue),
        acquire(3, 0, None),
        cancel,
        acquire(3, 2, queue),
        acquire(1, 0, None),
        Operation::Renew { lock: Lock::Semaphore, owner: 4, number: 0, lease: 60, commit: None },
        Operation::Pass { millis: 10, wall_jump: 0 },
        Operation::Inspect { lock: Lock::Semaphore },
    ];
    assert_eq!(judge::<Table>(&operations), Ok(()));
}

/// The checker finds that a wrong table breaks this promise; other broken promises do not count.
fn is_caught<S: Subject>(promise: &str) {
    let config = Config { cases: 20_000, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&node_operations(), |operations| {
        match judge::<S>(&operations) {
            Err(broken) if broken.starts_with(promise) => Err(TestCaseError::fail(broken)),
            _ => Ok(()),
        }
    });
    assert!(result.is_err(), "the checker let a table pass that breaks {promise}");
}

#[test]
fn a_release_without_owner_check_is_caught() {
    is_caught::<mutants::AnyoneReleases>("I3:");
}

#[test]
fn a_renewal_that_recreates_is_caught() {
    is_caught::<mutants::RenewalRecreates>("I3:");
}

#[test]
fn one_holder_too_many_is_caught() {
    is_caught::<mutants::OneTooMany>("I1:");
}

#[test]
fn a_fence_from_the_calendar_alone_is_caught() {
    is_caught::<mutants::FenceFromCalendar>("I4:");
}

#[test]
fn an_acquire_that_counts_twice_is_caught() {
    is_caught::<mutants::CountsTwice>("I5:");
}

#[test]
fn a_queue_that_skips_its_head_is_caught() {
    is_caught::<mutants::SkipsTheHead>("I10:");
}

#[test]
fn a_grant_of_an_outdated_fence_is_caught() {
    is_caught::<mutants::GrantsOutdated>("I4:");
}

#[test]
fn a_commit_that_is_not_stored_is_caught() {
    is_caught::<mutants::ForgetsCommit>("I4:");
}

#[test]
fn a_queue_in_the_order_of_arrival_is_caught() {
    is_caught::<mutants::OrdersByArrival>("I10:");
}
