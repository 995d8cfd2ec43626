//! Slots on the move: one at a time, in both orders of keys, abandoned, and by the thousand.

use std::sync::Arc;
use std::time::Duration;

use tenure::Released;
use tenure_testkit::resp::Reply;
use tenure_testkit::{Cluster, KeyOrder};

use super::fixture::{
    LEASE, LONG, THIRDS, connect, name_in, names_in, on_all, slot, until, until_queued, with,
};
use super::load::Load;

/// I1, I4, I7, I10: a slot is moved step by step while clients hold, wait for and take its locks.
async fn moves(cluster: Arc<Cluster>, order: KeyOrder) {
    let clients = [connect(&cluster).await, connect(&cluster).await];
    let moved = slot("x");
    // Several locks of one slot, by the same hash tag.
    let same: Vec<_> = names_in(&(moved..=moved)).take(4).collect();
    let from = cluster.owner(moved);
    let to = (from + 1) % 3;
    let held = clients[0].lock(&same[0]).lease(LEASE).acquire().await.unwrap();
    let lock = clients[1].lock(&same[0]);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until_queued(&clients[0], &same[0], 1).await;
    let load = Load::start(&clients, &same[1..], 2);
    load.more(30).await;
    with(&cluster, move |cluster| cluster.begin_migration(moved, to)).await;
    load.more(30).await;
    loop {
        let left = with(&cluster, move |cluster| cluster.move_keys(moved, to, order, 1)).await;
        load.more(10).await;
        if left == 0 {
            break;
        }
    }
    held.ensure_held().unwrap();
    // Keys that were made meanwhile on the source are moved, too.
    with(&cluster, move |cluster| {
        cluster.move_keys(moved, to, order, 1000);
        cluster.finish_migration(moved, to);
    })
    .await;
    load.more(30).await;
    let report = load.stop().await;
    assert_eq!(report.overlaps, 0, "I1: {report:?}");
    assert!(report.longest_wait < Duration::from_secs(6), "I7: {report:?}");
    held.ensure_held().unwrap();
    let fence = held.fence();
    assert_eq!(held.release().await.unwrap(), Released::Now);
    let next = tokio::time::timeout(LONG, waiting).await.expect("granted").unwrap().unwrap();
    assert!(next.fence() > fence, "I4");
}

#[test]
fn a_slot_is_moved_under_load() {
    on_all(|cluster| moves(cluster, KeyOrder::AsStored));
}

#[test]
fn a_slot_is_moved_under_load_in_the_other_order_of_keys() {
    on_all(|cluster| moves(cluster, KeyOrder::Reversed));
}

/// I7: while a slot is in transit no queue can begin, so a request polls: it gets the lock soon after its release, and joins
/// the queue when the slot has arrived.
async fn polls_in_transit(cluster: Arc<Cluster>) {
    let (ann, bob) = (connect(&cluster).await, connect(&cluster).await);
    let name = name_in(&THIRDS[0]);
    let moved = slot(&name);
    let guard = ann.lock(&name).lease(LEASE).acquire().await.unwrap();
    with(&cluster, move |cluster| cluster.begin_migration(moved, 1)).await;
    let lock = bob.lock(&name);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    super::fixture::pass(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    assert_eq!(guard.release().await.unwrap(), Released::Now);
    let within = tokio::time::timeout(Duration::from_secs(4), waiting).await;
    let guard = within.expect("granted soon").unwrap().unwrap();
    // A semaphore needs more than a string at once.
    let free = ann.semaphore(names_in(&(moved..=moved)).nth(1).unwrap(), 2);
    drop(free.acquire().await.unwrap());
    with(&cluster, move |cluster| {
        cluster.move_keys(moved, 1, KeyOrder::AsStored, 1000);
        cluster.finish_migration(moved, 1);
    })
    .await;
    let lock = ann.lock(&name);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until_queued(&bob, &name, 1).await;
    drop(guard);
    drop(tokio::time::timeout(LONG, waiting).await.expect("granted").unwrap().unwrap());
}

#[test]
fn a_request_polls_while_its_slot_is_in_transit() {
    on_all(polls_in_transit);
}

/// I4: a migration that is abandoned leaves a lock that was taken at its target behind, so that the source grants it again. That
/// cannot be prevented; the next fence is larger all the same, and the first holder learns of it at its next renewal.
async fn abandons(cluster: Arc<Cluster>) {
    let (ann, bob) = (connect(&cluster).await, connect(&cluster).await);
    let name = name_in(&THIRDS[0]);
    let moved = slot(&name);
    with(&cluster, move |cluster| cluster.begin_migration(moved, 1)).await;
    // Absent at the source, it is taken at the target.
    let first = ann.lock(&name).lease(Duration::from_secs(3)).acquire().await.unwrap();
    with(&cluster, move |cluster| cluster.abandon_migration(moved)).await;
    let second = bob.lock(&name).lease(LEASE).acquire().await.unwrap();
    assert!(second.fence() > first.fence(), "I4");
    tokio::time::timeout(Duration::from_secs(3), first.lost()).await.expect("I9");
    second.ensure_held().unwrap();
}

#[test]
fn an_abandoned_migration_is_survived_by_fences() {
    on_all(abandons);
}

/// I4: the source of a slot in transit fails over. Its replica may not know of the migration, and then grants a lock again that
/// was taken at the target (Redis 7.0 does; Valkey's replicas know). Fences grow all the same.
async fn source_fails_over(cluster: Arc<Cluster>) {
    let (ann, bob) = (connect(&cluster).await, connect(&cluster).await);
    let name = name_in(&THIRDS[0]);
    let moved = slot(&name);
    with(&cluster, move |cluster| cluster.begin_migration(moved, 1)).await;
    let first = ann.lock(&name).lease(Duration::from_secs(5)).acquire().await.unwrap();
    // The importing node's view of this slot does not change with it, so that the views never agree.
    with(&cluster, |cluster| cluster.command(3, &["CLUSTER", "FAILOVER"])).await;
    until("the replica takes over", async || {
        let role = with(&cluster, |cluster| cluster.command(3, &["ROLE"])).await;
        matches!(role, Reply::Array(Some(words)) if words[0].text().as_deref() == Some("master"))
    })
    .await;
    match bob.lock(&name).lease(LEASE).try_acquire().await.unwrap() {
        Some(second) => {
            assert!(second.fence() > first.fence(), "I4");
            tokio::time::timeout(Duration::from_secs(5), first.lost()).await.expect("I9");
        }
        None => first.ensure_held().unwrap(),
    }
}

#[test]
fn a_failover_of_the_source_in_transit_is_survived_by_fences() {
    on_all(source_fails_over);
}

/// I7: clients wait in hundreds of slots, all of which are moved: each subscription is ended by the server, and made again
/// elsewhere.
async fn resubscribes(cluster: Arc<Cluster>) {
    let (ann, bob) = (connect(&cluster).await, connect(&cluster).await);
    let slots = 0..=199u16;
    let names: Vec<_> = slots.clone().map(|slot| name_in(&(slot..=slot))).collect();
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for name in &names {
        held.push(ann.lock(name).lease(LEASE).acquire().await.unwrap());
        let lock = bob.lock(name);
        waiting.push(tokio::spawn(async move { lock.acquire().await }));
    }
    for name in &names {
        until_queued(&ann, name, 1).await;
    }
    let range = slots.clone();
    with(&cluster, move |cluster| cluster.move_slots(range, 2)).await;
    for (guard, waiting) in held.into_iter().zip(waiting) {
        assert_eq!(guard.release().await.unwrap(), Released::Now);
        let granted = tokio::time::timeout(LONG, waiting).await.expect("granted");
        drop(granted.unwrap().unwrap());
    }
}

#[test]
fn waiters_follow_their_slots() {
    on_all(resubscribes);
}

/// A thousand slots there and back under load.
#[test]
fn a_thousand_slots_are_moved_there_and_back() {
    if std::env::var_os("TENURE_LONG").is_none() {
        return;
    }
    on_all(moves_a_thousand);
}

async fn moves_a_thousand(cluster: Arc<Cluster>) {
    let clients = [connect(&cluster).await, connect(&cluster).await];
    let names: Vec<_> = (0..1000).step_by(50).map(|slot| name_in(&(slot..=slot))).collect();
    let load = Load::start(&clients, &names, 1);
    for to in [1, 2, 0] {
        load.more(100).await;
        with(&cluster, move |cluster| cluster.move_slots(0..=999, to)).await;
    }
    load.more(100).await;
    let report = load.stop().await;
    assert_eq!(report.overlaps, 0, "I1: {report:?}");
    assert!(report.longest_wait < Duration::from_secs(6), "I7: {report:?}");
    eprintln!("{} sections, {} errors", report.sections, report.failures);
}
