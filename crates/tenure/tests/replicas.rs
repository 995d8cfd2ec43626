//! Locks that replicas of a server must have before they are given out, on real servers.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/flavors.rs"]
mod flavors;
#[path = "common/waiting.rs"]
mod waiting;

mod replicas {
    pub(crate) mod fixture;

    mod failover;
    mod options;
    mod renewals;
}

use std::time::Duration;

use replicas::fixture::{Group, LONG, ms, on_all, pass, run, stored, until};
use tenure::{Error, Guard, Owner, Tenure, Wait, acquire_all};
use tenure_testkit::Flavor;

/// Replicas that did not confirm in time.
#[track_caller]
fn missing(result: Result<impl Sized, Error>) -> (u32, u32) {
    match result.map(drop) {
        Err(Error::Unreplicated { replicas, wanted, .. }) => (replicas, wanted),
        other => panic!("{other:?}"),
    }
}

/// The guard is not given out before a replica has the lock: it is stopped, and goes on.
async fn a_grant_waits_for_the_replica(flavor: Flavor) {
    let group = Group::start(flavor, 1).await;
    let lock = group.client.lock("x").wait_replicas(1, Duration::from_secs(20));
    group.pause(true);
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    until(&group.other().await, "x", |info| !info.is_free()).await;
    pass(ms(300)).await;
    assert!(!acquiring.is_finished(), "no replica has it");
    group.pause(false);
    let guard = tokio::time::timeout(LONG, acquiring).await.unwrap().unwrap().unwrap();
    assert!(stored(&group.replicas[0], "x").is_some(), "the replica has the lock");
    guard.ensure_held().unwrap();
    guard.release().await.unwrap();
}

#[test]
fn a_lock_is_on_a_replica_before_it_is_given_out() {
    on_all(a_grant_waits_for_the_replica);
}

/// Every way to acquire, and every kind: the replica has it as soon as the guard is there, and is behind otherwise.
async fn every_way_is_confirmed(flavor: Flavor) {
    let group = Group::start(flavor, 1).await;
    let (client, within) = (&group.client, Duration::from_secs(10));
    let lock = |name: &str| client.lock(name).wait_replicas(1, within);
    let is_replicated = |guard: &Guard| {
        assert!(stored(&group.replicas[0], guard.name().as_str()).is_some(), "{guard:?}");
    };
    is_replicated(&lock("waiting").acquire().await.unwrap());
    is_replicated(&lock("once").try_acquire().await.unwrap().unwrap());
    is_replicated(&lock("tries").acquire_with(Wait::attempts(2)).await.unwrap());
    let rwlock = client.rwlock("rw").wait_replicas(1, within);
    is_replicated(&rwlock.read().await.unwrap());
    let semaphore = client.semaphore("semaphore", 3).wait_replicas(1, within);
    is_replicated(&semaphore.acquire_many(2).await.unwrap());
    let election = client.election("election").wait_replicas(1, within);
    is_replicated(election.campaign().await.unwrap().guard());
    let guards = acquire_all(["a", "b"].map(lock), Wait::forever()).await.unwrap();
    guards.iter().for_each(is_replicated);
    let calls = group.calls("wait");
    assert!(calls >= 7, "{calls} waits");
}

#[test]
fn every_kind_and_way_to_acquire_is_confirmed() {
    on_all(every_way_is_confirmed);
}

/// Too few replicas: an error that says so, in time, and the lock is free.
async fn too_few_replicas(flavor: Flavor) {
    let group = Group::start(flavor, 1).await;
    let other = group.other().await;
    let two = group.client.lock("x").wait_replicas(2, ms(100));
    assert_eq!(missing(two.try_acquire().await), (1, 2), "one of two has it");
    assert!(other.lock("x").inspect().await.unwrap().is_free());
    group.pause(true);
    let one = group.client.lock("x").wait_replicas(1, ms(200)).at_least(Duration::from_secs(60));
    let ways: [Result<(), Error>; 3] = [
        one.acquire().await.map(drop),
        one.try_acquire().await.map(drop),
        one.acquire_with(Wait::attempts(3)).await.map(drop),
    ];
    for result in ways {
        let error = result.unwrap_err();
        let said = "could not acquire `x`: 0 of 1 replicas confirmed it within 200ms; check the server's \
                    replicas, or wait for fewer or for longer";
        assert_eq!(error.to_string(), said);
        assert!(other.lock("x").try_acquire().await.unwrap().is_some(), "free, and not kept");
    }
    let long = group.client.lock("x").wait_replicas(1, Duration::from_secs(20));
    let shorter = tokio::time::timeout(LONG / 3, long.acquire_within(ms(300)));
    assert_eq!(missing(shorter.await.expect("the caller's time is shorter")), (0, 1));
    let both = ["x", "y"].map(|name| group.client.lock(name).wait_replicas(1, ms(100)));
    assert_eq!(missing(acquire_all(both, Wait::forever()).await), (0, 1));
    assert!(other.lock("y").try_acquire().await.unwrap().is_some());
    group.pause(false);
    drop(long.acquire().await.unwrap());
}

#[test]
fn too_few_replicas_are_an_error_and_the_lock_is_free() {
    on_all(too_few_replicas);
}

/// I7: a hand-over is confirmed as well. If it cannot be, the lock goes to the next waiter.
async fn a_hand_over_is_confirmed(flavor: Flavor) {
    let group = Group::start(flavor, 1).await;
    let (other, third) = (group.other().await, group.other().await);
    for is_in_time in [true, false] {
        let held = group.client.lock("x").acquire().await.unwrap();
        let within = if is_in_time { Duration::from_secs(20) } else { ms(500) };
        let first = other.lock("x").wait_replicas(1, within);
        let first = tokio::spawn(async move { first.acquire().await });
        until(&group.client, "x", |info| info.waiting == 1).await;
        let second = third.lock("x");
        let second = tokio::spawn(async move { second.acquire().await });
        until(&group.client, "x", |info| info.waiting == 2).await;
        group.pause(true);
        let fence = held.fence();
        drop(held);
        until(&group.client, "x", |info| info.waiting == 1).await;
        pass(ms(200)).await;
        assert!(!first.is_finished(), "not given out: no replica has it");
        if is_in_time {
            group.pause(false);
            let guard = tokio::time::timeout(LONG, first).await.unwrap().unwrap().unwrap();
            assert!(guard.fence() > fence, "I4");
            assert!(guard.remaining() > Duration::from_secs(20), "renewed: the whole lease");
            drop(guard);
        } else {
            assert_eq!(missing(first.await.unwrap()), (0, 1));
            group.pause(false);
        }
        let next = tokio::time::timeout(LONG, second).await.unwrap().unwrap().unwrap();
        next.release().await.unwrap();
    }
}

#[test]
fn a_hand_over_is_confirmed_before_it_is_given_out() {
    on_all(a_hand_over_is_confirmed);
}

/// The connection for confirmations is blocked while a replica is missing. All that wait for it share the wait.
async fn missing_replicas_do_not_add_up(flavor: Flavor) {
    let group = Group::start(flavor, 1).await;
    group.pause(true);
    let acquire = |number: u64| {
        let lock = group.client.lock(format!("x{number}")).wait_replicas(1, ms(500));
        tokio::spawn(async move {
            pass(ms(number * 10)).await;
            lock.acquire().await
        })
    };
    let acquiring: Vec<_> = (0..40).map(acquire).collect();
    let all = async {
        for acquiring in acquiring {
            assert_eq!(missing(acquiring.await.unwrap()), (0, 1));
        }
    };
    // One after another, they would take 20 s.
    tokio::time::timeout(Duration::from_secs(10), all).await.expect("they share the wait");
}

#[test]
fn missing_replicas_delay_each_acquire_once() {
    on_all(missing_replicas_do_not_add_up);
}

/// A request for more replicas than there are does not keep back one for fewer.
async fn few_do_not_wait_for_many(flavor: Flavor) {
    let group = Group::start(flavor, 1).await;
    let two = group.client.lock("two").wait_replicas(2, Duration::from_secs(20));
    let two = tokio::spawn(async move { two.acquire().await });
    until(&group.client, "two", |info| !info.is_free()).await;
    let one = group.client.lock("one").wait_replicas(1, Duration::from_secs(20));
    let guard = tokio::time::timeout(LONG / 3, one.acquire()).await.unwrap().unwrap();
    assert!(stored(&group.replicas[0], "one").is_some());
    assert!(!two.is_finished());
    // I8: a caller that leaves releases what was granted.
    two.abort();
    drop((two.await, guard));
    until(&group.client, "two", |info| info.is_free()).await;
}

#[test]
fn a_wait_for_many_does_not_keep_back_one_for_few() {
    on_all(few_do_not_wait_for_many);
}

/// A re-entry counts as well, in the store and in this process; also with a shorter lease, which changes nothing in the
/// store, and also into a hold that no replica was asked about.
async fn entries_are_confirmed(flavor: Flavor) {
    let group = Group::start(flavor, 1).await;
    let owner = Owner::new();
    let plain = group.client.lock("x").owner(owner);
    let confirmed = |time| plain.clone().lease(Duration::from_secs(9)).wait_replicas(1, time);
    for lock in [confirmed(ms(200)), confirmed(ms(200)).count_locally()] {
        let first = plain.clone().count_locally().acquire().await.unwrap();
        group.pause(true);
        assert_eq!(missing(lock.acquire().await), (0, 1));
        first.ensure_held().unwrap();
        group.pause(false);
        let second = lock.clone().wait_replicas(1, LONG / 4).lease(LONG).acquire().await.unwrap();
        drop(first);
        second.ensure_held().unwrap();
        drop(second);
        until(&group.client, "x", |info| info.is_free()).await;
    }
}

#[test]
fn a_further_entry_is_confirmed() {
    on_all(entries_are_confirmed);
}

/// A local hand-over is the same hold, and needs no confirmation of its own.
#[tokio::test]
async fn a_local_hand_over_needs_no_confirmation() {
    let group = Group::start(Flavor::Redis, 1).await;
    let other = group.other().await;
    for _ in 0..50 {
        let held = other.lock("x").acquire().await.unwrap();
        let lock = group.client.lock("x").wait_replicas(1, Duration::from_secs(20));
        let acquire = |lock: tenure::Lock| async move { drop(lock.acquire().await.unwrap()) };
        let tasks: Vec<_> = (0..3).map(|_| tokio::spawn(acquire(lock.clone()))).collect();
        until(&other, "x", |info| info.waiting == 1).await;
        pass(ms(20)).await;
        let before = group.calls("wait");
        drop(held);
        for task in tasks {
            task.await.unwrap();
        }
        // On a busy machine a hand-over takes too long to be local: then repeat.
        if group.calls("wait") - before == 1 {
            return;
        }
    }
    panic!("three holders always needed several confirmations");
}

/// A client that waits for no replica has three connections, one that does has four. If that one is lost, another is made,
/// on which nothing is confirmed that was written on the first.
async fn connections(flavor: Flavor) {
    let group = Group::start(flavor, 1).await;
    drop(group.client.lock("x").acquire().await.unwrap());
    assert_eq!(group.client.health().links.len(), 3);
    let lock = group.client.lock("x").wait_replicas(1, ms(500));
    drop(lock.acquire().await.unwrap());
    assert_eq!(group.client.health().links.len(), 4);
    group.pause(true);
    let long = lock.clone().wait_replicas(1, Duration::from_secs(20));
    let killing = async {
        for _ in 0..6 {
            pass(ms(200)).await;
            run(&group.master, &["CLIENT", "KILL", "TYPE", "normal"]);
        }
    };
    let (failed, ()) = tokio::join!(long.acquire_within(ms(1500)), killing);
    assert!(failed.is_err(), "no replica has it");
    group.pause(false);
    until(&group.other().await, "x", |info| info.is_free()).await;
    let mut again = lock.acquire().await;
    while let Err(Error::Unreachable { .. } | Error::Unknown { .. }) = again {
        again = lock.acquire().await;
    }
    drop(again.unwrap());
}

#[test]
fn a_lost_connection_confirms_nothing() {
    on_all(connections);
}

/// A client that waits for replicas adopts a lock once they have it. It stays detached otherwise.
async fn an_adopted_lock_is_confirmed(flavor: Flavor) {
    let group = Group::start(flavor, 1).await;
    let handle = group.client.lock("x").acquire().await.unwrap().detach().await.unwrap();
    let waiting = Tenure::builder().wait_replicas(1, ms(200));
    let waiting = waiting.connect(&group.master.url()).await.unwrap();
    group.pause(true);
    assert_eq!(missing(waiting.adopt(handle.clone()).await), (0, 1));
    assert!(!group.client.lock("x").inspect().await.unwrap().is_free());
    group.pause(false);
    let adopted = tokio::time::timeout(LONG, async {
        loop {
            match waiting.adopt(handle.clone()).await {
                Ok(guard) => return guard,
                Err(Error::Unreplicated { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    adopted.await.expect("the replica is back").release().await.unwrap();
}

#[test]
fn a_lock_is_on_a_replica_before_it_is_adopted() {
    on_all(an_adopted_lock_is_confirmed);
}
