//! Clients that are cut off from nodes.

use std::time::Duration;

use tenure::{Released, Tenure};
use tenure_testkit::proxy::Direction;

use super::fixture::{LONG, Nodes, acquire, is_about_x, now, until, until_well};

/// A client that is cut off from a minority works; black holes cost it nothing after the first timeout.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_minority_works() {
    let nodes = Nodes::start(5).await;
    let (tenure, proxies) = nodes.distant_client().await;
    let held = acquire(&tenure, "held").await;
    proxies[0].black_hole();
    proxies[3].black_hole();
    let started = now();
    for _ in 0..20 {
        let guard = tenure.lock("x").acquire().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::Now);
    }
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert!(!held.is_lost());
    proxies.iter().for_each(tenure_testkit::Proxy::heal);
    until_well(&tenure).await;
    assert_eq!(held.release().await.unwrap(), Released::Now);
    nodes.until_empty().await;
}

/// I1, I4, I9: a client that is cut off from a majority loses its lock in time, and another gets it.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_majority_loses_and_another_gets_the_lock() {
    let nodes = Nodes::start(5).await;
    let (cut_off, proxies) = nodes.distant_client().await;
    let other = nodes.client().await;
    let first = acquire(&cut_off, "x").await;
    for proxy in &proxies[..3] {
        proxy.black_hole();
    }
    let second = acquire(&other, "x").await;
    assert!(first.is_lost(), "I1: two holders");
    assert!(second.fence() > first.fence(), "I4");
    assert_eq!(first.release().await.unwrap(), Released::AlreadyLost);
    proxies.iter().for_each(tenure_testkit::Proxy::heal);
    until_well(&cut_off).await;
    assert!(!second.is_lost());
    assert_eq!(second.release().await.unwrap(), Released::Now);
    let third = acquire(&cut_off, "x").await;
    third.release().await.unwrap();
    nodes.until_empty().await;
}

/// I7: a waiter gets the lock although wake-ups of a majority are lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_served_although_messages_are_lost() {
    let nodes = Nodes::start(3).await;
    let (waiting, proxies) = nodes.distant_client().await;
    let holder = nodes.client().await;
    let guard = acquire(&holder, "x").await;
    for proxy in &proxies[..2] {
        proxy.drop_messages(true);
    }
    let lock = waiting.lock("x");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    tokio::task::yield_now().await;
    let first = guard.fence();
    guard.release().await.unwrap();
    let second = waiter.await.unwrap().unwrap();
    assert!(second.fence() > first);
    second.release().await.unwrap();
    nodes.until_empty().await;
}

/// I1: the lock is taken away by force at a node that a candidate has, while it awaits the answer of another one. It counted
/// the first one all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_forced_release_concerns_a_candidate_that_awaits_answers() {
    let nodes = Nodes::start(3).await;
    let (asking, its) = nodes.distant_client().await;
    let (other, others) = nodes.distant_client().await;
    its[1].refuse(true);
    its[1].cut();
    others[2].refuse(true);
    others[2].cut();
    let rule = its[2].hold(is_about_x, Direction::Replies);
    let lock = asking.lock("x");
    let first = tokio::spawn(async move { lock.try_acquire().await });
    its[2].wait_until("the answer is held", |proxy| proxy.strikes(rule) >= 1);
    let lock = other.lock("x");
    let second = tokio::spawn(async move { lock.acquire_within(LONG).await });
    let node = Tenure::connect(&nodes.0[0].url()).await.unwrap();
    until("it waits", async || node.lock("x").inspect().await.unwrap().waiting == 1).await;
    node.lock("x").force_release("its holder hangs").await.unwrap();
    let second = second.await.unwrap().unwrap();
    // It knows of that by a message, and asks the node again.
    its[0].wait_until("it asks again", |proxy| proxy.seen(is_about_x) >= 2);
    its[2].release();
    if let Ok(Some(first)) = first.await.unwrap() {
        assert!(first.is_lost() || second.is_lost(), "I1: two holders");
    }
}
