//! A slot that stays in transit.

use std::sync::Arc;
use std::time::Duration;

use tenure_testkit::{Cluster, KeyOrder};

use super::fixture::{
    LEASE, LONG, THIRDS, connect, name_in, names_in, now, on_all, run, slot, until_queued, with,
};

/// Moves the keys of a slot to node 1, and leaves it in transit.
async fn half_move(cluster: &Arc<Cluster>, moved: u16) {
    with(cluster, move |cluster| {
        cluster.begin_migration(moved, 1);
        cluster.move_keys(moved, 1, KeyOrder::AsStored, 1000);
    })
    .await;
}

async fn finish_move(cluster: &Arc<Cluster>, moved: u16) {
    with(cluster, move |cluster| {
        cluster.move_keys(moved, 1, KeyOrder::AsStored, 1000);
        cluster.finish_migration(moved, 1);
    })
    .await;
}

/// I7: a waiter has asked nothing since its lock has moved, and is subscribed at the other node: it is woken all the same.
async fn wakes(cluster: Arc<Cluster>) {
    let (ann, bob) = (connect(&cluster).await, connect(&cluster).await);
    let name = name_in(&THIRDS[0]);
    let held = ann.lock(&name).lease(LEASE).acquire().await.unwrap();
    let lock = bob.lock(&name).lease(LEASE);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until_queued(&ann, &name, 1).await;
    half_move(&cluster, slot(&name)).await;
    let released = now();
    held.release().await.unwrap();
    let guard = tokio::time::timeout(LONG, waiting).await.expect("granted").unwrap().unwrap();
    assert!(released.elapsed() < Duration::from_secs(1), "I7: after {:?}", released.elapsed());
    guard.release().await.unwrap();
    finish_move(&cluster, slot(&name)).await;
}

#[test]
fn a_waiter_is_woken_though_its_lock_is_at_another_node() {
    on_all(wakes);
}

/// I10: two waiters, one of whom came before the slot was moved, and one after: they are served in order.
async fn keeps_the_order(cluster: Arc<Cluster>) {
    let clients = [connect(&cluster).await, connect(&cluster).await, connect(&cluster).await];
    let name = name_in(&THIRDS[0]);
    let held = clients[0].lock(&name).lease(LEASE).acquire().await.unwrap();
    let wait = |client: usize| {
        let lock = clients[client].lock(&name).fair().lease(LEASE);
        tokio::spawn(async move { lock.acquire().await.unwrap().fence() })
    };
    let first = wait(1);
    until_queued(&clients[0], &name, 1).await;
    half_move(&cluster, slot(&name)).await;
    let second = wait(2);
    until_queued(&clients[0], &name, 2).await;
    held.release().await.unwrap();
    assert!(first.await.unwrap() < second.await.unwrap(), "I10");
    finish_move(&cluster, slot(&name)).await;
}

#[test]
fn waiters_are_served_in_order_in_transit() {
    on_all(keeps_the_order);
}

/// Nodes behind an address translation: MOVED and ASK name a port, and mean the host that was asked.
async fn follows_without_a_host(cluster: Arc<Cluster>) {
    let client = connect(&cluster).await;
    let name = name_in(&THIRDS[0]);
    let moved = slot(&name);
    with(&cluster, move |cluster| cluster.begin_migration(moved, 1)).await;
    let same: Vec<_> = names_in(&(moved..=moved)).take(2).collect();
    assert!(client.lock(&same[0]).try_acquire().await.unwrap().is_some(), "ASK");
    finish_move(&cluster, moved).await;
    assert!(client.lock(&same[1]).try_acquire().await.unwrap().is_some(), "MOVED");
}

#[test]
fn a_redirection_without_a_host_is_followed() {
    for flavor in Cluster::flavors() {
        run(flavor, follows_without_a_host, |it| {
            it.node_timeout(LONG).arg("--cluster-preferred-endpoint-type", "unknown-endpoint")
        });
    }
}
