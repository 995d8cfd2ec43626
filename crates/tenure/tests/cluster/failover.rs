//! Failovers, planned and not, and primaries that stop.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Error, Released};
use tenure_testkit::Cluster;

use super::fixture::{
    LEASE, LONG, THIRDS, acquire, connect, name_in, names_in, on_all, on_all_with_failover, pass,
    run, slot, until, until_queued, until_replicated, with,
};
use super::load::Load;
use super::outage::counter;

/// I1, I7, I9: an operator has a replica take over. The holder keeps its lock, its waiter is granted it by the new primary,
/// and clients under load see no two holders.
async fn follows_a_planned_failover(cluster: Arc<Cluster>) {
    let clients = [connect(&cluster).await, connect(&cluster).await];
    let name = name_in(&THIRDS[0]);
    let guard = clients[0].lock(&name).lease(LEASE).acquire().await.unwrap();
    let lock = clients[1].lock(&name);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until_queued(&clients[0], &name, 1).await;
    let names: Vec<_> = names_in(&THIRDS[0]).skip(1).take(3).collect();
    let load = Load::start(&clients, &names, 2);
    load.more(50).await;

    with(&cluster, |cluster| cluster.fail_over(0)).await;
    load.more(50).await;
    with(&cluster, |cluster| cluster.fail_over(3)).await;
    load.more(50).await;
    let report = load.stop().await;
    assert_eq!(report.overlaps, 0, "I1: {report:?}");
    assert!(report.longest_wait < Duration::from_secs(6), "I7: {report:?}");

    guard.ensure_held().unwrap();
    let fence = guard.fence();
    assert_eq!(guard.release().await.unwrap(), Released::Now);
    let next = tokio::time::timeout(LONG, waiting).await.expect("granted").unwrap().unwrap();
    assert!(next.fence() > fence, "I4");
}

#[test]
fn a_planned_failover_is_followed() {
    on_all(follows_a_planned_failover);
}

/// I4, I9: a primary is killed. A lock that its replica has is kept, new ones are had from the replica, and locks of other
/// primaries are not affected.
async fn follows_a_crash(cluster: Arc<Cluster>) {
    let client = connect(&cluster).await;
    let (kept, other) = (name_in(&THIRDS[0]), name_in(&THIRDS[1]));
    let held = client.lock(&kept).lease(LEASE).acquire().await.unwrap();
    let elsewhere = client.lock(&other).lease(Duration::from_secs(3)).acquire().await.unwrap();
    until_replicated(&cluster, &kept).await;
    let mut cluster = Arc::into_inner(cluster).unwrap();
    cluster.nodes[0].kill();

    let new = names_in(&THIRDS[0]).nth(1).unwrap();
    // Other primaries go on meanwhile.
    for number in 0..20 {
        drop(client.lock(format!("{other}/{number}")).try_acquire().await);
    }
    let guard = acquire(&client, &new).await;
    assert!(guard.fence() > held.fence(), "I4");
    until("the client is connected", async || client.health().is_well()).await;
    held.ensure_held().unwrap();
    elsewhere.ensure_held().unwrap();
    assert_eq!(held.release().await.unwrap(), Released::Now);
    assert_eq!(guard.release().await.unwrap(), Released::Now);
    // The dead one comes back, as a replica.
    cluster.nodes[0].restart();
    cluster.await_ok();
    assert_eq!(acquire(&client, &kept).await.release().await.unwrap(), Released::Now);
}

#[test]
fn a_killed_primary_is_replaced() {
    on_all_with_failover(follows_a_crash);
}

/// I1, I6: a primary is stopped with acquires in its socket, its replica takes over, and it goes on. It answers those acquires
/// with success, and forgets them: none of them may be believed.
async fn believes_no_ghost(cluster: Arc<Cluster>) {
    let (client, other) = (connect(&cluster).await, connect(&cluster).await);
    let names: Vec<_> = names_in(&THIRDS[0]).take(20).collect();
    // Every connection is in use before.
    for name in &names {
        drop(client.lock(name).acquire().await.unwrap());
    }
    cluster.nodes[0].pause(true);
    let tries: Vec<_> = names
        .iter()
        .map(|name| {
            let lock = client.lock(name).lease(LEASE);
            tokio::spawn(async move { lock.try_acquire().await })
        })
        .collect();
    let first = slot(&names[0]);
    with(&cluster, move |cluster| {
        cluster.await_owner_other_than(first, 0);
        cluster.nodes[0].pause(false);
        cluster.await_ok();
    })
    .await;
    for (name, attempt) in names.iter().zip(tries) {
        let Ok(Some(guard)) = attempt.await.unwrap() else { continue };
        // If it is believed, the new primary has it.
        let taken = other.lock(name).try_acquire().await.unwrap();
        assert!(taken.is_none() || guard.is_lost(), "I1: two clients hold {name}");
    }
}

#[test]
fn a_grant_of_a_replaced_primary_is_not_believed() {
    on_all_with_failover(believes_no_ghost);
}

/// A primary was stopped, replaced and continued. A client that had been idle sent it requests shortly before that: it answered
/// them fast, and so they were believed. Two clients held one lock (I1), and a release that was reported as done was not (I6).
async fn believes_no_fast_ghost(cluster: Arc<Cluster>) {
    let idle = connect(&cluster).await;
    let [taken, released] = two_names();
    drop(idle.lock(&taken).acquire().await.unwrap());
    let held = idle.lock(&released).lease(LEASE).acquire().await.unwrap();
    until_replicated(&cluster, &released).await;
    let first = slot(&taken);
    with(&cluster, move |cluster| {
        cluster.nodes[0].pause(true);
        cluster.await_owner_other_than(first, 0);
    })
    .await;
    let other = connect(&cluster).await;
    let theirs = other.lock(&taken).lease(LEASE).acquire().await.unwrap();
    let lock = idle.lock(&taken).lease(LEASE);
    let acquiring = tokio::spawn(async move { lock.try_acquire().await });
    let releasing = tokio::spawn(held.release());
    pass(Duration::from_millis(100)).await;
    cluster.nodes[0].pause(false);
    if let Ok(Some(guard)) = acquiring.await.unwrap() {
        assert!(guard.is_lost() || theirs.is_lost(), "I1: two clients hold {taken}");
    }
    match releasing.await.unwrap() {
        // The release goes on in the background.
        Err(error) => assert!(matches!(error, Error::Unknown { .. }), "{error:?}"),
        Ok(outcome) => assert_eq!(outcome, Released::Now),
    }
    let next = other.lock(&released).acquire_within(Duration::from_secs(10)).await;
    drop(next.expect("I6: it is free long before its lease ends"));
}

fn two_names() -> [String; 2] {
    let mut names = names_in(&THIRDS[0]);
    [names.next().unwrap(), names.next().unwrap()]
}

#[test]
fn a_fast_answer_of_a_replaced_primary_is_not_believed() {
    on_all_with_failover(believes_no_fast_ghost);
}

/// I1: the same with a message. A primary that was replaced performs the release in its socket, and hands the lock over to its
/// first waiter, which has been idle. Meanwhile the new primary has given it to another client.
async fn believes_no_message_of_a_ghost(cluster: Arc<Cluster>) {
    let (holder, waiter) = (connect(&cluster).await, connect(&cluster).await);
    let name = name_in(&THIRDS[0]);
    let held = holder.lock(&name).lease(LEASE).acquire().await.unwrap();
    let lock = waiter.lock(&name).lease(LEASE);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until_queued(&holder, &name, 1).await;
    until_replicated(&cluster, &name).await;
    // The waiter, too.
    pass(Duration::from_millis(200)).await;
    let first = slot(&name);
    with(&cluster, move |cluster| {
        cluster.nodes[0].pause(true);
        cluster.await_owner_other_than(first, 0);
    })
    .await;
    let other = connect(&cluster).await;
    let releasing = tokio::spawn(held.release());
    pass(Duration::from_millis(50)).await;
    other.lock(&name).force_release("the holder does not answer").await.unwrap();
    let theirs = other.lock(&name).lease(LEASE).acquire().await.unwrap();
    cluster.nodes[0].pause(false);
    if let Ok(granted) = tokio::time::timeout(Duration::from_secs(1), waiting).await {
        let guard = granted.unwrap().unwrap();
        assert!(guard.is_lost() || theirs.is_lost(), "I1: two clients hold {name}");
    }
    let _ = releasing.await.unwrap();
}

#[test]
fn a_message_of_a_replaced_primary_is_not_believed() {
    on_all_with_failover(believes_no_message_of_a_ghost);
}

/// What a silence costs: the first answer after it is confirmed by the other primaries, on the connections that there are.
async fn confirms_after_a_silence(cluster: Arc<Cluster>) {
    let client = connect(&cluster).await;
    let name = name_in(&THIRDS[0]);
    drop(client.lock(&name).acquire().await.unwrap());
    let before = with(&cluster, connections).await;
    let pairs = 20;
    for _ in 0..pairs {
        pass(Duration::from_millis(300)).await;
        client.lock(&name).acquire().await.unwrap().release().await.unwrap();
    }
    // Counting makes some of its own.
    let made = with(&cluster, connections).await - before;
    assert!(made < pairs, "{made} connections for {pairs} locks");
}

fn connections(cluster: &Cluster) -> u64 {
    counter(cluster, "stats", "total_connections_received")
}

#[test]
fn an_answer_after_a_silence_is_confirmed_without_new_connections() {
    on_all(confirms_after_a_silence);
}

/// I9: a primary stops, and is not replaced. The locks of others are renewed in time; its own are lost in time.
async fn is_not_delayed_by_a_dead_node(cluster: Arc<Cluster>) {
    let client = connect(&cluster).await;
    let lease = Duration::from_secs(3);
    let mut kept = Vec::new();
    for name in names_in(&THIRDS[1]).take(50).chain(names_in(&THIRDS[2]).take(50)) {
        kept.push(client.lock(name).lease(lease).acquire().await.unwrap());
    }
    let dead = client.lock(name_in(&THIRDS[0])).lease(lease).acquire().await.unwrap();
    let started = super::fixture::now();
    cluster.nodes[0].pause(true);
    dead.lost().await;
    assert!(started.elapsed() < lease, "I9: after {:?}", started.elapsed());
    super::fixture::pass(lease).await;
    for guard in &kept {
        guard.ensure_held().unwrap();
    }
    cluster.nodes[0].pause(false);
}

#[test]
fn a_dead_node_delays_no_other() {
    for flavor in Cluster::flavors() {
        run(flavor, is_not_delayed_by_a_dead_node, |it| it.replicas(0).node_timeout(LONG));
    }
}

/// Every primary in turn is killed under load, and comes back. Fences grow throughout (I4), and the clients go on.
#[test]
fn each_node_in_turn_is_killed_under_load() {
    if std::env::var_os("TENURE_LONG").is_none() {
        return;
    }
    on_all_with_failover(kills_each_in_turn);
}

async fn kills_each_in_turn(cluster: Arc<Cluster>) {
    let clients = [connect(&cluster).await, connect(&cluster).await];
    let names: Vec<_> = THIRDS.iter().flat_map(|third| names_in(third).take(2)).collect();
    let load = Load::start(&clients, &names, 2);
    let mut cluster = Arc::into_inner(cluster).unwrap();
    for node in 0..6 {
        load.more(100).await;
        cluster.nodes[node].kill();
        load.more(100).await;
        cluster.nodes[node].restart();
        let shared = Arc::new(cluster);
        with(&shared, |cluster| cluster.await_ok()).await;
        cluster = Arc::into_inner(shared).unwrap();
    }
    let report = load.stop().await;
    eprintln!("{} sections, {} errors", report.sections, report.failures);
    assert!(report.longest_wait < LONG, "I7: {report:?}");
}
