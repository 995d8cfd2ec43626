//! Locks whose handle another process has, while a node has not answered the one that acquired them, or knows them by another
//! number.

use std::time::Duration;

use tenure::engine::{Engine, RedisEngine};
use tenure::{Guard, LockName, Released, Tenure};
use tenure_testkit::proxy::{Command, Direction};

use super::ends::{distant, with_lease};
use super::entries::{cut_off, is_held_alone};
use super::fixture::{Nodes, now, pass, until, until_well};

const LEASE: Duration = Duration::from_secs(30);

fn is_script(command: &Command) -> bool {
    matches!(command.name(), "EVALSHA" | "EVAL")
}

/// I6: a node had the entry of a detached lock in its queue. Its release by handle did not find it there, and the node granted it
/// after that.
#[tokio::test(flavor = "multi_thread")]
async fn a_released_handle_waits_in_no_queue() {
    let (nodes, waiter, _paths) = with_lease(LEASE).await;
    let (first, proxies) = distant(&nodes, LEASE).await;
    let held = first.lock("x").acquire().await.unwrap();
    until("all nodes have it", async || nodes.locks_at(2).await == 1).await;
    let lock = waiter.lock("x");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until("it waits", async || first.lock("x").inspect().await.unwrap().waiting == 1).await;
    // Node 2 does not learn of the release.
    cut_off(&proxies[2]);
    held.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    let handle = guard.detach().await.unwrap();
    // As a process that has printed the handle, and ends.
    drop(waiter);
    let releasing = nodes.client().await;
    assert_eq!(releasing.release(&handle).await.unwrap(), Released::Now);
    let released = now();
    let engine = RedisEngine::connect(&nodes.0[2].url()).await.unwrap();
    let name = LockName::new("x").unwrap();
    until("it left the queue", async || engine.inspect(name.clone()).await.unwrap().waiting == 0)
        .await;
    assert_eq!(nodes.locks_at(2).await, 1, "its first holder is still there");
    proxies[2].refuse(false);
    nodes.until_empty().await;
    assert!(released.elapsed() < LEASE / 2, "at once, and not when its lease ends");
}

/// I6: the request of a lock that was detached arrived at a node after another process had released it by its handle.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_request_gets_nothing_after_the_release_of_its_handle() {
    let (nodes, client, proxies) = with_lease(LEASE).await;
    proxies[2].hold(is_script, Direction::Requests);
    let guard = client.lock("x").acquire().await.unwrap();
    let handle = guard.detach().await.unwrap();
    assert_eq!(nodes.client().await.release(&handle).await.unwrap(), Released::Now);
    let released = now();
    proxies[2].release();
    // It arrives. Its end may be right behind it, if this took longer than a second.
    pass(Duration::from_secs(1)).await;
    nodes.until_empty().await;
    assert!(released.elapsed() < LEASE / 2, "at once, and not when its lease ends");
}

/// I1: the process with the handle may rely on a node that got the request late.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_request_stays_until_its_handle_is_released() {
    let (nodes, client, proxies) = with_lease(LEASE).await;
    proxies[2].hold(is_script, Direction::Requests);
    let guard = client.lock("x").acquire().await.unwrap();
    let handle = guard.detach().await.unwrap();
    proxies[2].release();
    until("the request arrives", async || nodes.locks_at(2).await == 1).await;
    // It is looked at after one second, and after three.
    pass(Duration::from_secs(4)).await;
    assert_eq!(nodes.locks_at(2).await, 1);
    assert_eq!(nodes.client().await.release(&handle).await.unwrap(), Released::Now);
    nodes.until_empty().await;
}

/// A lock that the nodes know by different numbers: its client had node 0, gave it back, and got all of them.
async fn renumbered(nodes: &Nodes, client: &Tenure) -> Guard {
    let others = [1, 2].map(|node| nodes.0[node].url());
    let mut held = Vec::new();
    for url in &others {
        let plain = Tenure::connect(url).await.unwrap();
        held.push((plain.lock("x").acquire().await.unwrap(), plain));
    }
    let lock = client.lock("x");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until("it waits", async || held[0].1.lock("x").inspect().await.unwrap().waiting == 1).await;
    // It has node 0, a minority, and gives that back.
    pass(Duration::from_millis(1_200)).await;
    for (guard, _) in held {
        guard.release().await.unwrap();
    }
    let guard = waiting.await.unwrap().unwrap();
    until("node 0 has it", async || nodes.locks_at(0).await == 1).await;
    guard.renew().await.unwrap();
    guard
}

/// I1: a node has a detached lock by another number, which the client that has detached it ends as soon as it can reach the node
/// again. The process with the handle relied on that node, and a third client was granted the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_has_another_number_is_not_relied_on() {
    let lease = Duration::from_secs(6);
    let (nodes, first, first_paths) = with_lease(lease).await;
    let (second, second_paths) = distant(&nodes, lease).await;
    let guard = renumbered(&nodes, &first).await;
    cut_off(&first_paths[0]);
    let handle = guard.detach().await.unwrap();
    cut_off(&second_paths[1]);
    assert!(second.adopt(handle.clone()).await.is_err(), "node 2 alone has its number");
    second_paths[1].refuse(false);
    until_well(&second).await;
    let adopted = second.adopt(handle).await.unwrap();
    first_paths[0].refuse(false);
    until("node 0 is free", async || nodes.locks_at(0).await == 0).await;
    is_held_alone(&nodes, &adopted).await;
    pass(Duration::from_secs(4)).await;
    is_held_alone(&nodes, &adopted).await;
    assert_eq!(adopted.release().await.unwrap(), Released::Now);
    nodes.until_empty().await;
}

/// I6: the new number of a detached lock reached a node after the lock was released by it.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_number_gets_nothing_after_the_release_of_its_handle() {
    let (nodes, client, proxies) = with_lease(LEASE).await;
    let guard = renumbered(&nodes, &client).await;
    proxies[0].hold(is_script, Direction::Requests);
    let handle = guard.detach().await.unwrap();
    assert_eq!(nodes.client().await.release(&handle).await.unwrap(), Released::Now);
    let released = now();
    proxies[0].release();
    nodes.until_empty().await;
    assert!(released.elapsed() < LEASE / 2, "at once, and not when its lease ends");
}
