//! What only the scripts have of a node of a quorum: the plain case of a proposal, for how long its fence is kept, and
//! the order of waiters with gaps between their tickets. Everything else is compared with the table.

use tenure_testkit::Server;
use tenure_testkit::resp::Reply as Plain;

use super::answers::{acquire, cancel, name, proposing, release, renewal, waiting};
use super::caller::{Caller, RETENTION};
use super::*;

on_every_server!(
    an_uncontended_proposal_is_a_plain_case,
    a_proposed_fence_is_kept_until_the_clock_has_passed_it,
    a_waiter_is_placed_before_900_at_most,
    a_commit_that_cannot_be_stored_is_refused,
);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The cost of a quorum is that of its nodes: neither the full rules nor the fast path of contention are needed.
fn an_uncontended_proposal_is_a_plain_case(server: &Server) {
    let mut caller = Caller::new(server);
    caller.is_plain_only = true;
    for request in [acquire("x", Owner::new()), waiting(acquire("x", Owner::new()))] {
        let owner = request.entry.owner;
        let now = caller.now.as_micros();
        let granted = caller.call(&[&proposing(request, now - 5_000_000)]).remove(0);
        assert_eq!(granted, format!("1 {} {now}", now - 5_000_000));
        for _ in 0..3 {
            caller.pass(seconds(10));
            assert_eq!(caller.call(&[&renewal("x", owner)]), ["1"]);
        }
        assert_eq!(caller.call(&[&release("x", owner)]), ["0"]);
    }
    let owner = Owner::new();
    let ahead = caller.now.as_micros() + 50_000_000;
    assert!(caller.call(&[&proposing(acquire("x", owner), ahead)])[0].starts_with("1 "));
    assert_eq!(caller.call(&[&release("x", owner)]), ["0"]);
    caller.try_call(&[&proposing(acquire("x", owner), ahead)]).unwrap_err();
}

/// I4: otherwise the calendar alone would give a smaller one, as soon as the key has expired.
fn a_proposed_fence_is_kept_until_the_clock_has_passed_it(server: &Server) {
    let retention: i64 = RETENTION.parse().unwrap();
    let mut caller = Caller::new(server);
    let (owner, key) = (Owner::new(), keys::lock_key(&name("x")));
    let fence = caller.now.as_micros() + 50_000_000;
    let kept = |caller: &mut Caller| match caller.command(&["PTTL", &key]) {
        Plain::Integer(left) => left,
        other => panic!("{other:?}"),
    };
    caller.call(&[&proposing(acquire("x", owner), fence)]);
    assert!(kept(&mut caller) > retention + 30_000 + 49_000);
    caller.pass(seconds(10));
    assert_eq!(caller.call(&[&renewal("x", owner)]), ["1"]);
    assert!(kept(&mut caller) > retention + 30_000 + 39_000);
    assert_eq!(caller.call(&[&release("x", owner)]), ["0"]);
    let left = kept(&mut caller);
    assert!((retention + 39_000..=retention + 40_001).contains(&left), "{left}");
    let stored = caller.command(&["GET", &key]);
    assert_eq!(stored.text(), Some(fence.to_string()));
}

/// The owners of the waiters, in order.
fn order(caller: &mut Caller) -> Vec<Owner> {
    let reply = caller.run(&scripts::INSPECT, &[&name("x")], |command| {
        ["1000", "1"].iter().for_each(|most| command.push(most));
    });
    let lock = reply.array().unwrap()[1].array().unwrap();
    let entry = |row: &Reply| row.array().unwrap()[0].text().unwrap().to_owned();
    let owner = |entry: String| entry.split(':').next().unwrap().parse().unwrap();
    lock[4].array().unwrap().iter().map(entry).map(owner).collect()
}

/// As `core/queue.rs`: gaps between tickets do not count.
fn a_waiter_is_placed_before_900_at_most(server: &Server) {
    let mut caller = Caller::new(server);
    let now = caller.now.as_micros();
    caller.call(&[&acquire("x", Owner::new())]);
    let mut owners: Vec<_> = (0..926).map(|_| Owner::new()).collect();
    for (&owner, fence) in owners.iter().zip(now..) {
        let line = caller.call(&[&proposing(waiting(acquire("x", owner)), fence)]).remove(0);
        assert!(line.starts_with("2 "), "{line}");
    }
    let mut at = 0;
    owners.retain(|&owner| {
        at += 1;
        let leaves = at % 50 == 0 || at == 89;
        if leaves {
            caller.call(&[&cancel("x", owner)]);
        }
        !leaves
    });
    assert_eq!(owners.len(), 907);
    let first = Owner::new();
    let line = caller.call(&[&proposing(waiting(acquire("x", first)), now - 1)]).remove(0);
    assert!(line.starts_with("2 7 "), "{line}");
    owners.insert(7, first);
    let middle = Owner::new();
    // The waiter with the same proposal has a smaller owner, and nine more are behind it.
    let fence = now + 916;
    let line = caller.call(&[&proposing(waiting(acquire("x", middle)), fence)]).remove(0);
    assert!(line.starts_with("2 8 "), "{line}");
    owners.insert(owners.len() - 9, middle);
    assert!(order(&mut caller) == owners);
    for owner in [first, middle] {
        assert_eq!(caller.call(&[&cancel("x", owner)]), ["0"], "the index has its ticket");
    }
    owners.retain(|&owner| owner != first && owner != middle);
    assert!(order(&mut caller) == owners);
}

/// A fence that no clock can have must not make the lock unreadable.
fn a_commit_that_cannot_be_stored_is_refused(server: &Server) {
    let mut caller = Caller::new(server);
    let owner = Owner::new();
    caller.call(&[&acquire("x", owner)]);
    let before = caller.state();
    let commit = Some(Fence::MAX);
    let line = caller.call(&[&Renewal { commit, ..renewal("x", owner) }]).remove(0);
    assert!(line.starts_with("-AHEAD "), "{line}");
    assert_eq!(caller.state(), before);
    let error = errors::of_server(&line[1..]);
    assert!(!error.is_unknown() && error.is_lasting());
    assert_eq!(caller.call(&[&renewal("x", owner)]), ["1"]);
}
