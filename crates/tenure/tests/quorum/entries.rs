//! Entries at nodes that have missed some of what was asked of them, and long queues.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::{Guard, Owner, Released, Tenure};
use tenure_testkit::Proxy;
use tenure_testkit::proxy::{Command, Direction};

use super::fixture::{LONG, LONGEST, Nodes, now, pass, proxied, until, until_well, url};

/// A client with the longest lease, whose connections can be cut.
pub(crate) async fn holder(nodes: &Nodes) -> (Tenure, Vec<Proxy>) {
    let proxies: Vec<_> = nodes.0.iter().map(Proxy::start).collect();
    let builder = Tenure::builder().lease(LONGEST).patience(LONG);
    (builder.connect(&url(proxies.iter().map(proxied))).await.unwrap(), proxies)
}

pub(crate) fn cut_off(proxy: &Proxy) {
    proxy.refuse(true);
    proxy.cut();
}

/// No other client gets the lock while this guard is valid (I1).
pub(crate) async fn is_held_alone(nodes: &Nodes, guard: &Guard) {
    let other = nodes.client().await;
    for _ in 0..20 {
        if let Ok(Some(second)) = other.lock("x").try_acquire().await {
            assert!(guard.is_lost() || second.is_lost(), "I1: two holders");
            return;
        }
        pass(Duration::from_millis(50)).await;
    }
}

/// A node had missed a re-entry, and freed the lock with the release of the first entry, although it had counted for the
/// renewals of the second.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_missed_a_reentry_does_not_free_the_lock() {
    let nodes = Nodes::start(3).await;
    let (holder, proxies) = holder(&nodes).await;
    let lock = holder.lock("x").owner(Owner::new());
    let first = lock.acquire().await.unwrap();
    cut_off(&proxies[0]);
    let second = lock.acquire().await.unwrap();
    proxies[0].refuse(false);
    until_well(&holder).await;
    first.renew().await.unwrap();
    cut_off(&proxies[2]);
    // Node 2 has forgotten the lock.
    pass(LONGEST + LONGEST / 10).await;
    assert!(!first.is_lost() && !second.is_lost());
    first.release().await.unwrap();
    assert!(!second.is_lost());
    is_held_alone(&nodes, &second).await;
}

/// Whether a command cancels the first entry of an owner, alone or together with others.
pub(crate) fn is_cancel(command: &Command) -> bool {
    let Some((_marker, args)) = command.args().split_last() else { return false };
    let is_script = matches!(command.name(), "EVALSHA" | "EVAL");
    let count = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<usize>().ok();
    let Some(locks) = args.get(1).and_then(|text| count(text)).filter(|_| is_script) else {
        return false;
    };
    // A script, its keys, what all have in common, an owner and a number for each, and the marker.
    let mut entries = args.get(3 + locks..).unwrap_or_default().chunks(2);
    args.len() == 3 + 3 * locks && entries.any(|it| it[0].len() == 32 && it[1] == b"0")
}

/// A cancel was kept by a connection that was given up. It was sent again and confirmed, the same entry was granted, and then the
/// first copy arrived (A3).
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_arrives_late_ends_no_later_grant() {
    let nodes = Nodes::start(3).await;
    let (client, proxies) = holder(&nodes).await;
    let is_kept = AtomicBool::new(false);
    let first_cancel =
        move |command: &Command| is_cancel(command) && !is_kept.swap(true, Ordering::SeqCst);
    let rule = proxies[0].hold(first_cancel, Direction::Requests);
    cut_off(&proxies[1]);
    cut_off(&proxies[2]);
    let lock = client.lock("x");
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    proxies[0].wait_until("a cancel is kept", |proxy| proxy.strikes(rule) == 1);
    proxies[0].wait_until("it is sent again", |proxy| proxy.seen(is_cancel) >= 2);
    proxies[1].refuse(false);
    let guard = acquiring.await.unwrap().unwrap();
    proxies[0].release();
    is_held_alone(&nodes, &guard).await;
}

/// The nodes had different orders of very many waiters, each served another one, and none got a majority.
#[tokio::test(flavor = "multi_thread")]
async fn very_many_waiters_are_served() {
    let nodes = Nodes::start(3).await;
    let clients = [nodes.client().await, nodes.client().await];
    let held = clients[0].lock("x").acquire().await.unwrap();
    let waiters: Vec<_> = (0..400)
        .map(|number| {
            let lock = clients[number % 2].lock("x");
            tokio::spawn(async move { lock.acquire_within(LONG).await.map(drop) })
        })
        .collect();
    until("they wait", async || clients[0].lock("x").inspect().await.unwrap().waiting > 1).await;
    held.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
}

/// I6: a waiter had given a node back, and so had another number of entry there. A client with its handle did not release it at
/// that node.
#[tokio::test(flavor = "multi_thread")]
async fn a_detached_lock_is_released_at_every_node() {
    let nodes = Nodes::start(3).await;
    let (waiter, _proxies) = holder(&nodes).await;
    let (first, proxies) = holder(&nodes).await;
    cut_off(&proxies[0]);
    let held = first.lock("x").acquire().await.unwrap();
    let lock = waiter.lock("x");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until("it waits", async || first.lock("x").inspect().await.unwrap().waiting == 1).await;
    // It has node 0, which is a minority, and gives that back.
    pass(Duration::from_millis(500)).await;
    held.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    until("node 0 is repaired", async || nodes.locks_at(0).await == 1).await;
    let handle = guard.detach().await.unwrap();
    let released = now();
    assert_eq!(nodes.client().await.release(&handle).await.unwrap(), Released::Now);
    nodes.until_empty().await;
    assert!(released.elapsed() < LONGEST / 2, "at once, and not when its lease ends");
}

/// Several clients that try at the same moment may each get a minority, and a client may learn last of the node that it got: it
/// gave up before, and so did the others, and none had the lock.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_that_do_not_wait_gets_the_lock() {
    let nodes = Nodes::start(3).await;
    let mut clients = Vec::new();
    for _ in 0..6 {
        clients.push(nodes.client().await);
    }
    for round in 0..150 {
        let trying = clients.iter().map(|client| {
            let lock = client.lock(format!("round {round}").as_str());
            tokio::spawn(async move { lock.try_acquire().await.unwrap() })
        });
        let trying: Vec<_> = trying.collect();
        let mut guards = Vec::new();
        for task in trying {
            guards.extend(task.await.unwrap());
        }
        assert_eq!(guards.len(), 1, "round {round}");
    }
}
