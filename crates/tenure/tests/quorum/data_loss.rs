//! Nodes that have lost their data do not vote.

use std::time::Duration;

use tenure::engine::{AcquireRequest, Acquired, Engine, QuorumEngine, RedisEngine};
use tenure::{About, Entry, Error, Lease, LockName, Owner, Shape};
use tenure_testkit::resp::Reply;
use tenure_testkit::{Clock, Flavor, Server};

use super::fixture::{Nodes, acquire, now, pass, server, until, until_well};
use super::independence::assert_excluded;

/// Whether a server would grant a lock to a client that asks it alone, and does not look at its marker.
async fn would_grant(server: &Server, name: &str) -> bool {
    let engine = RedisEngine::connect(&server.url()).await.unwrap();
    let request = AcquireRequest {
        name: LockName::new(name).unwrap(),
        entry: Entry { owner: Owner::new(), number: 0 },
        shape: Shape::mutex(),
        lease: Lease::new(Duration::from_millis(10)).unwrap(),
        about: About::this_process().into(),
        queue: None,
        proposal: None,
    };
    matches!(engine.acquire(request).await.unwrap(), Acquired::Granted(_))
}

/// I1: the lock is held at two of three nodes. One of these restarts without its data: with it and the third, which
/// never knew of the lock, there would be a majority for a second holder.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_restarts_empty_does_not_vote() {
    let mut nodes = Nodes::start(3).await;
    let (holder, proxies) = nodes.distant_client().await;
    proxies[2].refuse(true);
    proxies[2].cut();
    let guard = acquire(&holder, "x").await;
    nodes.0[0].restart();
    assert!(would_grant(&nodes.0[0], "x").await, "it has lost the lock");
    assert!(would_grant(&nodes.0[2], "x").await, "it never had the lock");
    let acquired = now();
    let other = nodes.client().await;
    while acquired.elapsed() < Duration::from_secs(2) && !guard.is_lost() {
        let attempt = other.lock("x").try_acquire().await;
        assert!(!matches!(attempt, Ok(Some(_))) || guard.is_lost(), "I1: two holders");
        pass(Duration::from_millis(50)).await;
    }
}

/// I1: the same with FLUSHALL, which is no restart: every operation finds in the same step that the marker is missing.
/// After the quarantine the node votes again, by itself, and gets the counts of latches again: a latch that was open closed when
/// a second node had lost its data.
#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_node_votes_again_after_the_quarantine() {
    let nodes = Nodes::start(3).await;
    let (holder, proxies) = nodes.distant_client().await;
    let other = nodes.client().await;
    proxies[2].refuse(true);
    proxies[2].cut();
    let guard = acquire(&holder, "x").await;
    other.latch("l", 1).count_down().await.unwrap();
    let flushed = now();
    nodes.0[0].connect().unwrap().command(&["FLUSHALL"]).unwrap();
    for _ in 0..20 {
        let attempt = other.lock("x").try_acquire().await;
        assert!(!matches!(attempt, Ok(Some(_))) || guard.is_lost(), "I1: two holders");
        pass(Duration::from_millis(20)).await;
    }
    drop(guard);
    let marker = || nodes.0[0].connect().unwrap().command(&["EXISTS", "tenure:quorum"]).unwrap();
    until("the node is marked again", async || marker() == Reply::Integer(1)).await;
    assert!(flushed.elapsed() > Duration::from_secs(35), "the longest lease, and 30 s");
    until_well(&other).await;
    until("the count is there again", async || nodes.locks_at(0).await == 1).await;
}

/// I1: a restart with all its data cannot be distinguished from one with old data, so the node waits as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_restarts_with_its_data_waits() {
    let start = || Server::builder().on_port().persistent().start();
    let mut nodes = Nodes((0..3).map(|_| start()).collect());
    nodes.mark(false).await;
    let tenure = nodes.client().await;
    acquire(&tenure, "x").await.release().await.unwrap();
    nodes.0[0].restart();
    until("the node is expelled", async || {
        let links = tenure.health().links;
        links.iter().any(|it| it.error.as_ref().is_some_and(|it| it.contains("was restarted")))
    })
    .await;
    acquire(&tenure, "x").await.release().await.unwrap();
    nodes.0[1].kill();
    let refused = tenure.lock("x").acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Unreachable { .. } | Error::Unknown { .. }), "{refused}");
}

/// I1: a node comes back empty with a clock that is behind, which is then set right: the time of its quarantine is counted by
/// the other nodes.
#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_a_node_does_not_shorten_its_quarantine() {
    if Flavor::Redis.is_left_out() {
        return;
    }
    let clock = Clock::new();
    let first = Server::builder().program(clock.program()).on_port().start();
    let mut nodes = Nodes(vec![first, server(), server()]);
    nodes.mark(false).await;
    let (holder, proxies) = nodes.distant_client().await;
    let other = nodes.client().await;
    proxies[2].refuse(true);
    proxies[2].cut();
    let guard = acquire(&holder, "x").await;
    nodes.0[0].kill();
    clock.set_back(Duration::from_secs(120));
    nodes.0[0].restart();
    let token = || nodes.0[0].connect().unwrap().command(&["EXISTS", "tenure:quorum:absent"]);
    until("its absence is noted", async || token().unwrap() == Reply::Integer(1)).await;
    clock.set_ahead(Duration::ZERO);
    assert_excluded(&other, &guard).await;
    assert_excluded(&nodes.client().await, &guard).await;
    let marker = nodes.0[0].connect().unwrap().command(&["EXISTS", "tenure:quorum"]).unwrap();
    assert_eq!(marker, Reply::Integer(0));
}

/// All nodes were restarted, with all their data, and waited for each other for ever: none of them voted, so none counted the time
/// of the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_all_nodes_ends_with_the_quarantine() {
    let start = || Server::builder().flavor(Flavor::Redis).on_port().persistent().start();
    if Flavor::Redis.is_left_out() {
        return;
    }
    let mut nodes = Nodes((0..3).map(|_| start()).collect());
    nodes.mark(false).await;
    let tenure = nodes.client().await;
    acquire(&tenure, "x").await.release().await.unwrap();
    nodes.0.iter_mut().for_each(Server::restart);
    let refused = tenure.lock("x").acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Unreachable { .. } | Error::Unknown { .. }), "{refused}");
    let again = async || tenure.lock("x").try_acquire().await.is_ok();
    until("they vote again", again).await;
    // A client that connects then is admitted, too.
    acquire(&nodes.client().await, "x").await.release().await.unwrap();
}

/// A node with another policy removed the lock, and kept the marker, so that it granted the lock again.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_may_remove_locks_does_not_vote() {
    let nodes = Nodes::start(3).await;
    let (holder, proxies) = nodes.distant_client().await;
    proxies[2].refuse(true);
    proxies[2].cut();
    let guard = acquire(&holder, "x").await;
    let mut node = nodes.0[0].connect().unwrap();
    let policy = |policy| ["CONFIG", "SET", "maxmemory-policy", policy];
    node.command(&policy("volatile-ttl")).unwrap();
    assert_excluded(&nodes.client().await, &guard).await;
    // What it has removed stays away when the policy is set right.
    node.command(&["DEL", "tenure:{x}"]).unwrap();
    node.command(&policy("noeviction")).unwrap();
    assert_excluded(&nodes.client().await, &guard).await;
    let new = Nodes(vec![server(), server(), server()]);
    new.0[1].connect().unwrap().command(&policy("allkeys-lru")).unwrap();
    let refused = QuorumEngine::mark_nodes(&new.url(), None, false).await.unwrap_err().to_string();
    assert!(refused.contains("set it to `noeviction`"), "{refused}");
}
