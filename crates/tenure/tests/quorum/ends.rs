//! Ends of entries that come twice, late, or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use tenure::engine::{AcquireRequest, Acquired, Engine, Queueing, QuorumEngine};
use tenure::{About, Entry, Kind, Lease, LockName, Owner, Released, Shape, Tenure};
use tenure_testkit::Proxy;
use tenure_testkit::proxy::{Command, Direction, ReplyLost};

use super::entries::{cut_off, is_cancel, is_held_alone};
use super::fixture::{LONG, LONGEST, Nodes, now, pass, proxied, server, until, until_well, url};

/// I1, I8: an acquire was granted, and its future dropped before it was polled again. Its end was sent twice, and the second one
/// freed the lock that another task of the same owner had entered meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_acquire_frees_no_other_entry_of_its_owner() {
    let nodes = Nodes::start(3).await;
    let client = nodes.client().await;
    let lock = client.lock("x").owner(Owner::new()).lease(LONGEST);
    let again = lock.clone();
    let mut first = Box::pin(lock.acquire());
    let polled = first.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    // It is granted, and its task has not run yet.
    until("the nodes hold it", async || nodes.locks_at(0).await == 1).await;
    let second = again.acquire().await.unwrap();
    // An answer that was there at once is a guard, whose end is the same.
    drop((first, polled));
    is_held_alone(&nodes, &second).await;
    second.ensure_held().unwrap();
    assert_eq!(second.release().await.unwrap(), Released::Now);
    nodes.until_empty().await;
}

/// Nodes with their own longest lease, and a client whose connections can be cut.
pub(crate) async fn with_lease(lease: Duration) -> (Nodes, Tenure, Vec<Proxy>) {
    let nodes = Nodes((0..3).map(|_| server()).collect());
    QuorumEngine::mark_nodes(&nodes.url(), Some(lease), false).await.unwrap();
    let (client, proxies) = distant(&nodes, lease).await;
    (nodes, client, proxies)
}

pub(crate) async fn distant(nodes: &Nodes, lease: Duration) -> (Tenure, Vec<Proxy>) {
    let proxies: Vec<_> = nodes.0.iter().map(Proxy::start).collect();
    let builder = Tenure::builder().lease(lease).patience(LONG);
    (builder.connect(&url(proxies.iter().map(proxied))).await.unwrap(), proxies)
}

/// I1: an attempt had failed, and its cancel was under way to a node when the next attempt of the same entry was granted by the
/// others. A renewal repaired that node under the number of the cancel, which then ended it.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_cancel_does_not_end_what_was_repaired() {
    let (nodes, client, proxies) = with_lease(Duration::from_secs(9)).await;
    let cancels = Arc::new(AtomicUsize::new(0));
    let seen = cancels.clone();
    let first_cancel =
        move |it: &Command| is_cancel(it) && seen.fetch_add(1, Ordering::SeqCst) == 0;
    let rule = proxies[0].hold(first_cancel, Direction::Requests);
    // Nodes 1 and 2 are full for a moment.
    let fill = |limit: &str| {
        for node in [1, 2] {
            let mut connection = nodes.0[node].connect().unwrap();
            connection.command(&["CONFIG", "SET", "maxmemory", limit]).unwrap();
        }
    };
    fill("1");
    let lock = client.lock("x");
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    proxies[0].wait_until("a cancel is kept", |proxy| proxy.strikes(rule) == 1);
    fill("0");
    let guard = acquiring.await.unwrap().unwrap();
    // The connection to node 0 is given up, a reminder ends the first attempt there, and a renewal repairs it, before or after that.
    until("a reminder is sent", async || cancels.load(Ordering::SeqCst) > 1).await;
    pass(Duration::from_millis(500)).await;
    guard.renew().await.unwrap();
    until("node 0 is repaired", async || nodes.locks_at(0).await == 1).await;
    pass(Duration::from_millis(500)).await;
    cut_off(&proxies[1]);
    until("node 1 has forgotten it", async || nodes.locks_at(1).await == 0).await;
    guard.renew().await.unwrap();
    proxies[0].release();
    is_held_alone(&nodes, &guard).await;
    guard.ensure_held().unwrap();
}

/// I6: a node missed that the entry of a detached lock got another number. It was released by its handle, and the node kept the
/// old number for the whole lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_missed_a_new_number_ends_the_old_one() {
    let lease = Duration::from_secs(30);
    let (nodes, waiter, paths) = with_lease(lease).await;
    let (first, proxies) = distant(&nodes, lease).await;
    cut_off(&proxies[0]);
    let held = first.lock("x").acquire().await.unwrap();
    let lock = waiter.lock("x");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until("it waits", async || first.lock("x").inspect().await.unwrap().waiting == 1).await;
    // It has node 0, which is a minority, and gives that back: it has another number there.
    pass(Duration::from_millis(500)).await;
    held.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    until("node 0 has it", async || nodes.locks_at(0).await == 1).await;
    cut_off(&paths[0]);
    pass(Duration::from_millis(100)).await;
    let handle = guard.detach().await.unwrap();
    paths[0].refuse(false);
    until_well(&waiter).await;
    let released = now();
    assert_eq!(nodes.client().await.release(&handle).await.unwrap(), Released::Now);
    nodes.until_empty().await;
    assert!(released.elapsed() < lease / 2, "at once, and not when its lease ends");
}

/// I1: a waiter may ask once more although it has the lock. That question failed, and ended the hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_fails_does_not_end_the_hold() {
    let nodes = Nodes::start(3).await;
    let engine = QuorumEngine::connect(&nodes.url()).await.unwrap();
    let other = nodes.client().await;
    let queue = Queueing { heartbeat: LONG, claim: Duration::from_secs(3), fences: 1 };
    let held = AcquireRequest {
        name: LockName::new("x").unwrap(),
        entry: Entry { owner: Owner::new(), number: 1 },
        shape: Shape::new(Kind::Mutex, 1, 1).unwrap(),
        lease: Lease::new(LONGEST).unwrap(),
        about: Arc::new(About::this_process()),
        queue: Some(queue),
        proposal: None,
    };
    assert!(matches!(engine.acquire(held.clone()).await.unwrap(), Acquired::Granted(_)));
    let granted = now();
    [1, 2].iter().for_each(|node| nodes.0[*node].pause(true));
    engine.acquire(held).await.unwrap_err();
    [1, 2].iter().for_each(|node| nodes.0[*node].pause(false));
    while granted.elapsed() < LONGEST - Duration::from_millis(500) {
        let attempt = other.lock("x").try_acquire().await;
        let at = granted.elapsed();
        assert!(!matches!(attempt, Ok(Some(_))) || at >= LONGEST, "granted again after {at:?}");
        pass(Duration::from_millis(20)).await;
    }
}

/// I6: one node granted it, one did not, and the answer of the third was lost. Asked again, that one could not be reached, which was
/// taken for the answer to both questions: nothing ended the entry there.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_question_does_not_answer_the_one_before() {
    let lease = Duration::from_secs(30);
    let (nodes, client, proxies) = with_lease(lease).await;
    drop(client.lock("before").acquire().await.unwrap());
    let plain = Tenure::connect(&nodes.0[1].url()).await.unwrap();
    let other = plain.lock("x").acquire().await.unwrap();
    proxies[2].refuse(true);
    proxies[2].drop_reply(|it| it.has("tenure:{x}"), 1, ReplyLost::Cut);
    assert!(!matches!(client.lock("x").try_acquire().await, Ok(Some(_))));
    assert_eq!(nodes.locks_at(2).await, 1);
    let ended = now();
    proxies[2].refuse(false);
    other.release().await.unwrap();
    nodes.until_empty().await;
    assert!(ended.elapsed() < lease / 2, "at once, and not when its lease ends");
}

/// I6: a writer became a reader, which a node did not confirm. A renewal then gave it a second number there, and its release ended
/// only that one.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_was_a_writer_leaves_every_node() {
    let lease = Duration::from_secs(30);
    let (nodes, client, proxies) = with_lease(lease).await;
    drop(client.lock("before").acquire().await.unwrap());
    nodes.until_empty().await;
    proxies[2].hold(|it| it.has("tenure:{x}"), Direction::Replies);
    let writer = client.rwlock("x").try_write().await.unwrap().unwrap();
    until("node 2 has it", async || nodes.locks_at(2).await == 1).await;
    let reader = writer.downgrade().await;
    pass(Duration::from_millis(100)).await;
    proxies[2].cut();
    proxies[2].remove_all();
    until_well(&client).await;
    // The node is reminded of the permits that it has to give back.
    pass(Duration::from_millis(1_500)).await;
    reader.renew().await.unwrap();
    pass(Duration::from_millis(500)).await;
    let released = now();
    assert_eq!(reader.release().await.unwrap(), Released::Now);
    nodes.until_empty().await;
    assert!(released.elapsed() < lease / 2, "at once, and not when its lease ends");
}
