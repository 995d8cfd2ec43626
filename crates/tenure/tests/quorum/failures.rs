//! Nodes that are killed or stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tenure::{Error, Released, Tenure};
use tenure_testkit::Server;

use super::fixture::{LONG, Nodes, Witness, acquire, client, now, pass, until, until_well};

fn signal(server: &Server, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// I1, I4, R16: each node is killed in turn, under load, comes back empty, and is marked by an operator.
#[tokio::test(flavor = "multi_thread")]
async fn each_node_may_be_killed_in_turn() {
    let mut nodes = Nodes::start(3).await;
    let (witness, is_over) = (Arc::new(Witness::default()), Arc::new(AtomicBool::new(false)));
    let mut running = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..2 {
        let tenure = nodes.client().await;
        let (witness, is_over, user) = (witness.clone(), is_over.clone(), tenure.clone());
        clients.push(tenure);
        running.push(tokio::spawn(async move { witness.load(&user, "orders", &is_over).await }));
    }
    for node in 0..3 {
        witness.until_more(20).await;
        nodes.0[node].kill();
        witness.until_more(20).await;
        nodes.0[node].restart();
        witness.until_more(20).await;
        nodes.mark(true).await;
        for tenure in &clients {
            until_well(tenure).await;
        }
    }
    is_over.store(true, Ordering::SeqCst);
    for task in running {
        task.await.unwrap();
    }
    nodes.until_empty().await;
}

/// I6, I9: without a majority nothing is granted, and a holder is notified before its lease ends.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_nothing_is_granted_and_holders_lose() {
    let mut nodes = Nodes::start(5).await;
    let (holder, other) = (nodes.client().await, nodes.client().await);
    let guard = acquire(&holder, "x").await;
    nodes.0[0].kill();
    nodes.0[1].kill();
    let free = acquire(&other, "y").await;
    assert_eq!(free.release().await.unwrap(), Released::Now, "three of five are enough");
    nodes.0[2].kill();
    let killed = now();
    let refused = other.lock("z").acquire().await.unwrap_err();
    let is_error = matches!(refused, Error::Unreachable { .. } | Error::Unknown { .. });
    assert!(is_error && refused.to_string().contains("3 are needed"), "{refused}");
    guard.lost().await;
    assert!(killed.elapsed() < Duration::from_millis(3_100), "the lease was 3 s");
}

/// A node that is stopped is not waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_node_is_not_waited_for() {
    let nodes = Nodes::start(3).await;
    let tenure = nodes.client().await;
    let held = acquire(&tenure, "held").await;
    signal(&nodes.0[1], Signal::STOP);
    let started = now();
    for _ in 0..20 {
        let guard = tenure.lock("x").acquire().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::Now);
    }
    let time = started.elapsed();
    signal(&nodes.0[1], Signal::CONT);
    assert!(time < Duration::from_secs(1), "{time:?}");
    until_well(&tenure).await;
    assert_eq!(held.release().await.unwrap(), Released::Now);
    nodes.until_empty().await;
}

/// A client connects while a minority is down, and uses it when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_connects_to_a_majority() {
    let mut nodes = Nodes::start(3).await;
    nodes.0[2].kill();
    let tenure = client(&nodes.url()).await;
    let guard = acquire(&tenure, "x").await;
    assert!(!tenure.health().is_well());
    let down = tenure.health().links.into_iter().find(|link| !link.is_up).unwrap();
    assert!(down.node.unwrap().contains(&nodes.0[2].port().unwrap().to_string()));
    nodes.0[2].restart();
    nodes.mark(true).await;
    until_well(&tenure).await;
    // The next renewal repairs the node, which does not know of the lock.
    until("the node has the lock", async || nodes.locks_at(2).await == 1).await;
    nodes.0[0].kill();
    until("the lock is renewed", async || guard.renew().await.is_ok()).await;
    assert_eq!(guard.release().await.unwrap(), Released::Now);
}

/// I7: all nodes are away for some seconds while a lock is acquired, so that none has confirmed the end of the first
/// attempt when the next one begins.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_survives_an_outage_of_all_nodes() {
    let nodes = Nodes::start(3).await;
    let builder = Tenure::builder().lease(Duration::from_secs(3));
    let tenure = builder.connect(&nodes.url()).await.unwrap();
    acquire(&tenure, "x").await.release().await.unwrap();
    nodes.0.iter().for_each(|node| node.pause(true));
    let lock = tenure.lock("x");
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    pass(Duration::from_secs(3)).await;
    nodes.0.iter().for_each(|node| node.pause(false));
    until_well(&tenure).await;
    let ended = tokio::time::timeout(LONG, acquiring).await.expect("I7: it hangs").unwrap();
    let is_answered =
        matches!(ended, Ok(_) | Err(Error::Unreachable { .. } | Error::Unknown { .. }));
    assert!(is_answered, "{ended:?}");
}
