//! Nodes whose clock is set do not vote.

use std::time::Duration;

use tenure_testkit::resp::Reply;
use tenure_testkit::{Clock, Flavor, Proxy, Server};

use super::fixture::{
    LONG, LONGEST, Nodes, acquire, client, now, proxied, server, until, until_well, url,
};
use super::independence::assert_excluded;

const MINUTE: Duration = Duration::from_secs(60);

/// A quorum of which the first node's clock can be set.
async fn with_clock() -> (Nodes, Clock) {
    let clock = Clock::new();
    let first = Server::builder().program(clock.program()).on_port().start();
    let nodes = Nodes(vec![first, server(), server()]);
    nodes.mark(false).await;
    (nodes, clock)
}

/// I1: the lock is held at two of three nodes. The clock of one is set forward, so the lease ends there: with the third
/// node there would be a majority for a second holder. A client that has seen the clock before notices it, and a new one
/// sees that the calendars differ.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_clock_is_set_forward_does_not_vote() {
    if Flavor::Redis.is_left_out() {
        return;
    }
    let (nodes, clock) = with_clock().await;
    let (holder, proxies) = nodes.distant_client().await;
    let seen_before = nodes.client().await;
    acquire(&seen_before, "y").await.release().await.unwrap();
    proxies[2].refuse(true);
    proxies[2].cut();
    let guard = acquire(&holder, "x").await;
    clock.set_ahead(MINUTE);
    assert_excluded(&seen_before, &guard).await;
    assert_excluded(&nodes.client().await, &guard).await;
}

/// A clock was set forward by a day, which a client noted at the node, and back again when that client had ended: the note
/// would last for a day.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_clock_was_set_back_votes_after_the_longest_lease() {
    if Flavor::Redis.is_left_out() {
        return;
    }
    let (nodes, clock) = with_clock().await;
    let noticed = nodes.client().await;
    clock.set_ahead(60 * 24 * MINUTE);
    until("it is noted at the node", async || {
        let noted = nodes.0[0].connect().unwrap().command(&["EXISTS", "tenure:quorum:clock"]);
        noted.unwrap() == Reply::Integer(1)
    })
    .await;
    drop(noticed);
    clock.set_ahead(Duration::ZERO);
    let client = nodes.client().await;
    nodes.0[1].pause(true);
    let set_back = now();
    drop(acquire(&client, "x").await);
    nodes.0[1].pause(false);
    assert!(set_back.elapsed() < 3 * LONGEST);
}

/// I1: the same for a client that has asked nothing yet, and for one that reaches the node only later.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_was_idle_notices_that_a_clock_was_set() {
    if Flavor::Redis.is_left_out() {
        return;
    }
    let (nodes, clock) = with_clock().await;
    let (holder, proxies) = nodes.distant_client().await;
    let idle = nodes.client().await;
    proxies[2].refuse(true);
    proxies[2].cut();
    let guard = acquire(&holder, "x").await;
    clock.set_ahead(MINUTE);
    assert_excluded(&idle, &guard).await;
    let others: Vec<_> = nodes.0.iter().map(Proxy::start).collect();
    others[0].refuse(true);
    let late = client(&url(others.iter().map(proxied))).await;
    others[0].refuse(false);
    until_well(&late).await;
    assert_excluded(&late, &guard).await;
}

/// All clocks seem to be set forward to a client whose own clock stood still, as that of a virtual machine does while it is paused.
/// It notes nothing at the nodes: other clients would get no lock for the longest lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_of_a_client_that_stood_still_concerns_no_other_client() {
    if Flavor::Redis.is_left_out() {
        return;
    }
    let clock = Clock::new();
    let start = || Server::builder().program(clock.program()).on_port().start();
    let nodes = Nodes((0..3).map(|_| start()).collect());
    nodes.mark(false).await;
    let stood_still = nodes.client().await;
    acquire(&stood_still, "x").await.release().await.unwrap();
    clock.set_ahead(Duration::from_secs(5));
    until("it notices", async || stood_still.lock("x").try_acquire().await.is_err()).await;
    let started = now();
    acquire(&nodes.client().await, "x").await.release().await.unwrap();
    assert!(started.elapsed() < LONGEST / 2, "{:?}", started.elapsed());
    for node in &nodes.0 {
        let noted = node.connect().unwrap().command(&["EXISTS", "tenure:quorum:clock"]).unwrap();
        assert_eq!(noted, Reply::Integer(0));
    }
}

/// Corrections of some milliseconds at most nodes are everyday life: locks are held and acquired all the same.
#[tokio::test(flavor = "multi_thread")]
async fn small_corrections_of_clocks_cost_nothing() {
    if Flavor::Redis.is_left_out() {
        return;
    }
    let clocks = [Clock::new(), Clock::new()];
    let set = |clock: &Clock| Server::builder().program(clock.program()).on_port().start();
    let nodes = Nodes(vec![set(&clocks[0]), set(&clocks[1]), server()]);
    nodes.mark(false).await;
    let tenure = nodes.client().await;
    let held = acquire(&tenure, "held").await;
    clocks[0].set_ahead(Duration::from_millis(5));
    clocks[1].set_back(Duration::from_millis(5));
    let started = now();
    acquire(&tenure, "x").await.release().await.unwrap();
    assert!(started.elapsed() < LONGEST, "after {:?}", started.elapsed());
    assert!(!held.is_lost());
}

/// I4: fences grow although the clock of a node was set back; the two others are enough.
#[tokio::test(flavor = "multi_thread")]
async fn locks_work_while_the_clock_of_one_node_is_wrong() {
    if Flavor::Redis.is_left_out() {
        return;
    }
    let (nodes, clock) = with_clock().await;
    let tenure = nodes.client().await;
    let mut last = None;
    let set: [&dyn Fn(); 4] = [
        &|| clock.set_back(MINUTE),
        &|| clock.set_ahead(MINUTE),
        &|| clock.set_back(2 * MINUTE),
        &|| clock.set_ahead(Duration::ZERO),
    ];
    for set in set {
        for _ in 0..5 {
            let guard = acquire(&tenure, "x").await;
            assert!(last < Some(guard.fence()), "I4");
            last = Some(guard.fence());
            guard.release().await.unwrap();
        }
        set();
    }
    acquire(&nodes.client().await, "x").await.release().await.unwrap();
}

/// I1: the clock was set forward and back again. A client that asked meanwhile has noticed it, and noted it at the node; others
/// could not see it.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_over_is_known_to_others() {
    if Flavor::Redis.is_left_out() {
        return;
    }
    let (nodes, clock) = with_clock().await;
    let (holder, proxies) = nodes.distant_client().await;
    let (asking, idle) = (nodes.client().await, nodes.client().await);
    acquire(&asking, "y").await.release().await.unwrap();
    proxies[2].refuse(true);
    proxies[2].cut();
    let guard = acquire(&holder, "x").await;
    clock.set_ahead(MINUTE);
    // It ends the lease at this node.
    let _ = asking.lock("x").try_acquire().await;
    let note =
        || nodes.0[0].connect().unwrap().command(&["EXISTS", "tenure:quorum:clock"]).unwrap();
    until("it is noted", async || note() == Reply::Integer(1)).await;
    clock.set_ahead(Duration::ZERO);
    assert_excluded(&nodes.client().await, &guard).await;
    assert_excluded(&idle, &guard).await;
}

/// I1: a clock is behind for a while. Leases that are extended meanwhile end early when it is set right, so they do not count.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_clock_is_behind_extends_no_lease() {
    if Flavor::Redis.is_left_out() {
        return;
    }
    let (nodes, clock) = with_clock().await;
    let (holder, proxies) = nodes.distant_client().await;
    proxies[2].refuse(true);
    proxies[2].cut();
    let guard = acquire(&holder, "x").await;
    clock.set_back(MINUTE);
    tokio::time::timeout(LONG, guard.lost()).await.expect("one of three nodes extends it");
    // With the third one there is a majority without it.
    proxies[2].refuse(false);
    acquire(&holder, "x").await.release().await.unwrap();
}
