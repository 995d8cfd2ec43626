//! Barriers, latches and read-write locks whose clients reach different nodes.

use tenure::engine::QuorumEngine;
use tenure::{Error, Tenure};
use tenure_testkit::Proxy;
use tenure_testkit::proxy::Direction;
use tokio::task::JoinHandle;

use super::fixture::{LONG, Nodes, is_about_x, server, until, until_well};

fn cut_off(proxy: &Proxy) {
    proxy.refuse(true);
    proxy.cut();
}

async fn reconnect(proxy: &Proxy, tenure: &Tenure) {
    proxy.refuse(false);
    until_well(tenure).await;
}

/// A party of a barrier of two arrives. It is there once a majority of the nodes has it.
async fn arrive(tenure: &Tenure, waiting: usize) -> JoinHandle<Result<(), Error>> {
    let barrier = tenure.barrier("start", 2);
    let party = barrier.clone();
    let arrived = tokio::spawn(async move { party.wait_within(LONG).await });
    let is_there = async || {
        arrived.is_finished() || barrier.inspect().await.is_ok_and(|info| info.waiting == waiting)
    };
    until("the party is at the barrier", is_there).await;
    arrived
}

/// A party passed a barrier at two nodes and stayed in the queue of the third, so that the next time its partner passed
/// alone.
#[tokio::test(flavor = "multi_thread")]
async fn the_parties_of_a_barrier_pass_together_whichever_nodes_they_reach() {
    let nodes = Nodes((0..3).map(|_| server()).collect());
    QuorumEngine::mark_nodes(&nodes.url(), Some(LONG), false).await.unwrap();
    let (one, _open) = nodes.distant_client().await;
    let (two, proxies) = nodes.distant_client().await;
    let mut away = 2;
    for _ in 0..4 {
        cut_off(&proxies[away]);
        let first = arrive(&one, 1).await;
        assert!(!first.is_finished(), "it has passed alone");
        let second = arrive(&two, 0).await;
        first.await.unwrap().unwrap();
        second.await.unwrap().unwrap();
        reconnect(&proxies[away], &two).await;
        away = (away + 2) % 3;
    }
    nodes.until_empty().await;
}

/// Each of two counts reached a majority, but not the same one, and so the latch stayed closed for ever (I6, I7).
#[tokio::test(flavor = "multi_thread")]
async fn a_latch_opens_whichever_nodes_its_counts_have_reached() {
    let nodes = Nodes::start(3).await;
    let (one, of_one) = nodes.distant_client().await;
    let (two, of_two) = nodes.distant_client().await;
    cut_off(&of_one[2]);
    cut_off(&of_two[0]);
    one.latch("imported", 2).count_down().await.unwrap();
    two.latch("imported", 2).count_down().await.unwrap();
    reconnect(&of_one[2], &one).await;
    reconnect(&of_two[0], &two).await;
    nodes.client().await.latch("imported", 2).wait_within(LONG).await.unwrap();
}

/// A writer became a reader while a node was away, which then excluded other readers.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_became_a_reader_excludes_no_reader_at_any_node() {
    let nodes = Nodes::start(3).await;
    let (one, of_one) = nodes.distant_client().await;
    let (two, of_two) = nodes.distant_client().await;
    let writer = one.rwlock("index").write().await.unwrap();
    cut_off(&of_one[0]);
    let _reader = writer.downgrade().await;
    reconnect(&of_one[0], &one).await;
    cut_off(&of_two[1]);
    let lock = two.rwlock("index");
    until("another may read", async || matches!(lock.try_read().await, Ok(Some(_)))).await;
}

/// A higher limit let a waiter in at two nodes before the third had it. The waiter gave them back, as it should, and asked them again
/// with the limit of its request, which was the lower one from then on.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_asks_again_does_not_set_the_limit_back() {
    let nodes = Nodes::start(3).await;
    let holder = nodes.client().await;
    let (waiter, of_waiter) = nodes.distant_client().await;
    let (raising, its) = nodes.distant_client().await;
    let _held = holder.semaphore("x", 2).acquire_many(2).await.unwrap();
    let semaphore = waiter.semaphore("x", 2);
    let waiting = tokio::spawn(async move { semaphore.acquire_within(LONG).await });
    for node in &nodes.0 {
        let node = Tenure::connect(&node.url()).await.unwrap();
        until("it waits", async || node.lock("x").inspect().await.unwrap().waiting == 1).await;
    }
    its[2].hold(is_about_x, Direction::Requests);
    let asked = of_waiter[0].seen(is_about_x);
    raising.semaphore("x", 3).apply_limit().await.unwrap();
    of_waiter[0].wait_until("it gives the node back, and asks again", |proxy| {
        proxy.seen(is_about_x) >= asked + 2
    });
    its[2].release();
    let _one = waiting.await.unwrap().unwrap();
    assert_eq!(holder.lock("x").inspect().await.unwrap().limit, 3);
}

/// The same, when those who counted have ended before the nodes were back.
#[tokio::test(flavor = "multi_thread")]
async fn a_latch_opens_after_those_who_counted_have_ended() {
    let nodes = Nodes::start(3).await;
    for away in [2, 0] {
        let (tenure, proxies) = nodes.distant_client().await;
        cut_off(&proxies[away]);
        tenure.latch("imported", 2).count_down().await.unwrap();
    }
    nodes.client().await.latch("imported", 2).wait_within(LONG).await.unwrap();
}
