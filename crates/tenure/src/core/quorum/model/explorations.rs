//! Explorations of the model: breadth first from the start, and by random walks to where breadth does not reach.

use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model};

use super::prelude::Prelude;
use super::walk::Walk;
use super::{Bounds, LONGEST, Naive, Quorum};

/// Clients that do not wait; they renew, and repair nodes.
const ATTEMPTS: Bounds = Bounds {
    clients: 2,
    attempts: 2,
    renewals: 1,
    restarts: 1,
    repeats: 1,
    seconds: 10,
    waits: false,
};

/// Clients that wait in the queues of the nodes.
const QUEUE: Bounds = Bounds {
    clients: 3,
    attempts: 1,
    renewals: 1,
    restarts: 1,
    repeats: 1,
    seconds: 10,
    waits: true,
};

/// How many states to explore in each way: a few seconds' worth, or 48 million in all with `cargo xtask test --long`.
fn states() -> usize {
    if std::env::var_os("TENURE_LONG").is_some() { 12_000_000 } else { 100_000 }
}

fn breadth_first(bounds: Bounds) {
    let model = Quorum { bounds, naive: None, prelude: Vec::new() };
    let checker = model.checker().threads(2).target_state_count(states()).spawn_bfs().join();
    for (name, path) in checker.discoveries() {
        assert!(!name.starts_with('I'), "{name} is broken by {:#?}", path.into_actions());
    }
    assert!(checker.state_count() >= states(), "only {} states", checker.state_count());
}

fn at_random(bounds: Bounds) {
    let model = Quorum { bounds, naive: None, prelude: Vec::new() };
    let checker = model.checker().threads(2).target_state_count(states());
    let checker = checker.spawn_simulation(1, Walk).join();
    // Also that locks are granted again, so the walks get somewhere.
    checker.assert_properties();
    assert!(checker.state_count() >= states(), "only {} states", checker.state_count());
}

/// I1, I4.
#[test]
fn attempts_exclude_each_other_and_fences_grow() {
    breadth_first(ATTEMPTS);
    at_random(ATTEMPTS);
}

/// I1, I4.
#[test]
fn waiters_exclude_each_other_and_fences_grow() {
    breadth_first(QUEUE);
    at_random(QUEUE);
}

/// The model finds the error of a protocol that is wrong.
fn find(naive: Naive, bounds: Bounds) {
    find_after(Vec::new(), naive, bounds);
}

/// The same, after some steps: an error that takes many steps is found in time from there.
fn find_after(prelude: Vec<Prelude>, naive: Naive, bounds: Bounds) {
    let model = Quorum { bounds, naive: Some(naive), prelude };
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.timeout(Duration::from_secs(300));
    let found = checker.spawn_simulation(1, Walk).join().discoveries();
    let promise = found.keys().find(|name| name.starts_with('I'));
    assert!(promise.is_some(), "the error of {naive:?} was not found");
}

#[test]
fn the_largest_of_counters_is_no_fence() {
    find(Naive::Counters, ATTEMPTS);
}

#[test]
fn a_node_without_its_data_must_not_vote() {
    find(Naive::NoQuarantine, ATTEMPTS);
}

#[test]
fn a_repair_needs_proof() {
    // The second client is granted the lock after the lease of the first one has ended, at another majority.
    let prelude = vec![
        Prelude::Acquire(0),
        Prelude::Deliver(0, &[0, 2]),
        Prelude::Ticks(LONGEST),
        Prelude::Acquire(1),
        Prelude::Deliver(1, &[0, 1]),
    ];
    find_after(prelude, Naive::RepairWithoutProof, Bounds { repeats: 0, seconds: 12, ..ATTEMPTS });
}

#[test]
fn a_deadline_does_not_count_from_the_reply() {
    find(Naive::FromReply, ATTEMPTS);
}

#[test]
fn a_fence_is_not_granted_twice() {
    find(Naive::NotStrict, ATTEMPTS);
}

/// A waiter asks again with its old ticket, after a node has lost its data and votes again.
#[test]
fn an_old_proposal_must_not_be_accepted() {
    let prelude = vec![
        Prelude::Ticks(1),
        Prelude::Acquire(1),
        Prelude::Acquire(0),
        Prelude::Deliver(0, &[0, 1]),
        Prelude::Restart(0),
    ];
    find_after(prelude, Naive::AnyAge, Bounds { clients: 2, repeats: 0, ..QUEUE });
}

#[test]
fn different_fences_must_be_committed() {
    find(Naive::NoCommit, Bounds { renewals: 0, restarts: 0, repeats: 0, seconds: 8, ..QUEUE });
}

/// A waiter asks again after its attempt has failed, and then gets the message of a hand-over that it had cancelled.
#[test]
fn a_message_must_be_younger_than_an_answer() {
    let prelude = vec![
        Prelude::Acquire(0),
        Prelude::Deliver(0, &[0, 1, 2]),
        Prelude::Acquire(1),
        Prelude::Deliver(1, &[0, 1]),
    ];
    find_after(prelude, Naive::AnyMessage, Bounds { restarts: 0, repeats: 0, ..QUEUE });
}

/// A waiter asks again after its attempt has failed, and then the end of that arrives at a node that has granted the next one.
#[test]
fn an_entry_that_may_end_has_another_number() {
    let prelude = vec![Prelude::Acquire(0), Prelude::Deliver(0, &[0])];
    let bounds = Bounds { clients: 2, restarts: 0, repeats: 1, ..QUEUE };
    find_after(prelude, Naive::SameNumber, bounds);
}
