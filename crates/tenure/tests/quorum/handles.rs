//! Detached locks, while what their client has sent is still under way: it must end nothing that the process with the handle
//! relies on (I1).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tenure::engine::{AcquireRequest, Acquired, Engine, Queueing, QuorumEngine, RedisEngine};
use tenure::{About, Entry, Error, Lease, LockName, Owner, Released, Shape, Tenure};
use tenure_testkit::Proxy;
use tenure_testkit::proxy::{Command, Direction, ReplyLost};

use super::ends::{distant, with_lease};
use super::entries::{cut_off, is_held_alone};
use super::fixture::{LONG, LONGEST, Nodes, is_long, now, pass, proxied, until, until_well, url};
use super::gate::gated;

/// The words of a script's call: the hash, the number of keys, a key, and arguments.
fn words(command: &Command) -> Option<&[Vec<u8>]> {
    let is_script = matches!(command.name(), "EVALSHA" | "EVAL");
    is_script.then(|| command.args()).filter(|words| words.len() >= 6)
}

pub(crate) fn is_acquire(command: &Command) -> bool {
    words(command).is_some_and(|words| words.len() == 8)
}

fn is_renewal(command: &Command) -> bool {
    words(command).is_some_and(|words| words.len() == 7 && words[5].len() == 8)
}

fn is_look(command: &Command) -> bool {
    words(command).is_some_and(|words| words[4].len() < 8)
}

async fn until_seen(mut is_seen: impl FnMut() -> bool) {
    while !is_seen() {
        pass(Duration::from_millis(3)).await;
    }
}

pub(crate) fn request(owner: Owner, lease: Duration) -> AcquireRequest {
    let claim = Duration::from_secs(3);
    AcquireRequest {
        name: LockName::new("x").unwrap(),
        entry: Entry { owner, number: 1 },
        shape: Shape::mutex(),
        lease: Lease::new(lease).unwrap(),
        about: Arc::new(About::this_process()),
        queue: Some(Queueing { heartbeat: LONG, claim, fences: 1 }),
        proposal: None,
    }
}

/// The client asked the nodes whether a detached hold was released, and took the answers of different moments for one: a node
/// that got the request late was free before that, and another one was free after it.
#[tokio::test(flavor = "multi_thread")]
async fn looks_at_different_moments_prove_nothing() {
    if !is_long() {
        return;
    }
    let lease = Duration::from_secs(4);
    let (nodes, first, paths) = with_lease(lease).await;
    let (second, second_paths) = distant(&nodes, lease).await;
    drop(first.lock("warm").acquire().await.unwrap());
    let once = AtomicBool::new(false);
    let is_first = move |it: &Command| is_acquire(it) && !once.swap(true, Ordering::SeqCst);
    paths[2].hold(is_first, Direction::Requests);
    let handle = first.lock("x").acquire().await.unwrap().detach().await.unwrap();
    let adopted = second.adopt(handle).await.unwrap();
    pass(Duration::from_secs(5)).await;
    let looks = || paths[2].seen(is_look);
    let before = looks();
    until_seen(|| looks() > before).await;
    let before = looks();
    // The next look is in four seconds, a moment before the lease at node 0 ends.
    pass(Duration::from_millis(1250)).await;
    adopted.renew().await.unwrap();
    cut_off(&second_paths[0]);
    paths[0].hold(is_look, Direction::Requests);
    paths[1].hold(is_look, Direction::Requests);
    until_seen(|| looks() > before).await;
    pass(Duration::from_millis(30)).await;
    paths[2].release();
    until("the late request arrives", async || nodes.locks_at(2).await == 1).await;
    adopted.renew().await.unwrap();
    until("node 0 is free", async || nodes.locks_at(0).await == 0).await;
    paths[0].release();
    pass(Duration::from_millis(30)).await;
    paths[1].release();
    is_held_alone(&nodes, &adopted).await;
    adopted.ensure_held().unwrap();
}

/// A node had performed the request for the number of the handle, and its reply was lost: the client ended that number there when
/// it reached the node again.
#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_a_handle_is_not_ended() {
    if !is_long() {
        return;
    }
    let lease = Duration::from_secs(6);
    let (nodes, first, paths) = with_lease(lease).await;
    let (second, second_paths) = distant(&nodes, lease).await;
    drop(first.lock("warm").acquire().await.unwrap());
    nodes.until_empty().await;
    // Node 2 cannot be reached, and node 1 is held by another: node 0 is given back and taken again, with another number.
    let plain = Tenure::connect(&nodes.0[1].url()).await.unwrap();
    let held = plain.lock("x").acquire().await.unwrap();
    cut_off(&paths[2]);
    let lock = first.lock("x");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until("it waits", async || plain.lock("x").inspect().await.unwrap().waiting == 1).await;
    pass(Duration::from_millis(1500)).await;
    held.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    // No renewal reaches node 2, so that it is not repaired.
    paths[2].hold(is_renewal, Direction::Requests);
    paths[2].refuse(false);
    pass(Duration::from_millis(1200)).await;
    for path in &paths[..2] {
        path.delay(is_acquire, Direction::Requests, Duration::from_millis(300));
    }
    let rule = paths[2].drop_reply(is_acquire, 1, ReplyLost::Cut);
    let refuse = async {
        until_seen(|| paths[2].strikes(rule) > 0).await;
        cut_off(&paths[2]);
    };
    let ((), handle) = tokio::join!(refuse, guard.detach());
    cut_off(&second_paths[1]);
    let adopted = second.adopt(handle.unwrap()).await.unwrap();
    until("node 1 is free", async || nodes.locks_at(1).await == 0).await;
    adopted.ensure_held().unwrap();
    paths[2].remove_all();
    paths[2].refuse(false);
    until_well(&first).await;
    // Nodes are reminded of what has ended every second.
    pass(Duration::from_millis(1100)).await;
    is_held_alone(&nodes, &adopted).await;
    adopted.ensure_held().unwrap();
}

/// An owner that has detached a lock waits for it again. What was noted for the first time ended its entry at a node.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_may_acquire_again_what_it_has_detached() {
    let (nodes, client, paths) = with_lease(Duration::from_secs(9)).await;
    let owner = Owner::new();
    let lock = client.lock("x").owner(owner);
    let handle = lock.acquire().await.unwrap().detach().await.unwrap();
    assert_eq!(client.release(&handle).await.unwrap(), Released::Now);
    nodes.until_empty().await;
    let mut plain = Vec::new();
    for node in &nodes.0 {
        plain.push(Tenure::connect(&node.url()).await.unwrap());
    }
    let others = [1, 2].map(|node| plain[node].lock("x"));
    let (one, two) = (others[0].acquire().await.unwrap(), others[1].acquire().await.unwrap());
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until("it waits", async || others[0].inspect().await.unwrap().waiting == 1).await;
    pass(Duration::from_millis(300)).await;
    let zero = plain[0].lock("x").acquire().await.unwrap();
    let is_waiting = async || plain[0].lock("x").inspect().await.unwrap().waiting == 1;
    until("it waits at node 0, too", is_waiting).await;
    // A look would come after one second, and after three.
    for _ in 0..40 {
        pass(Duration::from_millis(100)).await;
        assert!(is_waiting().await, "it is in the queue (I10)");
    }
    for held in [zero, one, two] {
        held.release().await.unwrap();
    }
    waiting.await.unwrap().unwrap().ensure_held().unwrap();
    drop(paths);
}

/// A repair was under way when the hold was detached, and arrived after the release by its handle (I6).
#[tokio::test(flavor = "multi_thread")]
async fn a_late_repair_gets_nothing_after_the_release_of_its_handle() {
    let lease = Duration::from_secs(30);
    let (nodes, client, paths) = with_lease(lease).await;
    drop(client.lock("warm").acquire().await.unwrap());
    nodes.until_empty().await;
    cut_off(&paths[2]);
    pass(Duration::from_millis(100)).await;
    let guard = client.lock("x").acquire().await.unwrap();
    let rule = paths[2].hold(is_acquire, Direction::Requests);
    paths[2].refuse(false);
    until_seen(|| paths[2].strikes(rule) > 0).await;
    let handle = guard.detach().await.unwrap();
    assert_eq!(nodes.client().await.release(&handle).await.unwrap(), Released::Now);
    let released = now();
    paths[2].release();
    pass(Duration::from_secs(1)).await;
    nodes.until_empty().await;
    assert!(released.elapsed() < lease / 2, "at once, and not when its lease ends");
}

/// A release by handle was not answered. The same client adopted the hold, and ended it when it reached the nodes again.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_being_released_is_not_adopted() {
    let lease = Duration::from_secs(9);
    let (nodes, first, _paths) = with_lease(lease).await;
    let (second, paths) = distant(&nodes, lease).await;
    let handle = first.lock("x").acquire().await.unwrap().detach().await.unwrap();
    paths[1..].iter().for_each(cut_off);
    pass(Duration::from_millis(100)).await;
    let released = second.release(&handle).await.unwrap_err();
    assert!(matches!(released, Error::Unknown { .. } | Error::Unreachable { .. }), "{released}");
    paths[1..].iter().for_each(|path| path.refuse(false));
    let refused = second.adopt(handle).await.unwrap_err();
    assert!(matches!(refused, Error::Lost(_)), "{refused}");
}

/// A waiter asks once more although it has the lock. One of its nodes does not answer, and the third has it in its queue: the
/// nodes of the hold were given back.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_does_not_give_back_what_is_held() {
    let nodes = Nodes::start(3).await;
    let proxies: Vec<_> = nodes.0.iter().map(Proxy::start).collect();
    let engine = QuorumEngine::connect(&url(proxies.iter().map(proxied))).await.unwrap();
    let other = nodes.client().await;
    let plain = Tenure::connect(&nodes.0[2].url()).await.unwrap();
    let stale = plain.lock("x").acquire().await.unwrap();
    let held = request(Owner::new(), LONGEST);
    let granted = now();
    assert!(matches!(engine.acquire(held.clone()).await.unwrap(), Acquired::Granted(_)));
    let competitor = other.lock("x");
    let waiting = tokio::spawn(async move { competitor.acquire().await });
    until("it waits", async || plain.lock("x").inspect().await.unwrap().waiting > 0).await;
    cut_off(&proxies[1]);
    let _ = engine.acquire(held).await;
    pass(Duration::from_millis(700)).await;
    stale.release().await.unwrap();
    let left = (LONGEST - Duration::from_millis(500)).saturating_sub(granted.elapsed());
    assert!(tokio::time::timeout(left, waiting).await.is_err(), "its lease has not ended");
}

/// A hold was detached while a question of its waiter was being sent: the thread that sent it took the hold for one that was
/// released, and ended it at every node.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hold_can_be_detached_while_a_question_is_sent() {
    let (servers, gate, engine) = gated().await;
    let held = request(Owner::new(), Duration::from_secs(10));
    assert!(matches!(engine.acquire(held.clone()).await.unwrap(), Acquired::Granted(_)));
    gate.shut(true);
    let (asking, question) = (engine.clone(), held.clone());
    let sending = thread::spawn(move || asking.acquire(question));
    until_seen(|| gate.is_awaited()).await;
    engine.entry_to_detach(&held.name, held.entry).await.unwrap();
    engine.detach(&held.name, held.entry).unwrap();
    gate.shut(false);
    let _ = sending.join().unwrap().await;
    pass(Duration::from_millis(500)).await;
    for server in &servers {
        let node = RedisEngine::connect(&server.url()).await.unwrap();
        assert_eq!(node.inspect(held.name.clone()).await.unwrap().holding, 1);
    }
}

/// I8: two tasks of one owner acquire within one round trip. The first one detaches at once, and the other one gives up while its request
/// is under way: its entry stayed at every node for its lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_detach_does_not_concern_another_acquire_of_its_owner() {
    let lease = Duration::from_secs(30);
    let (nodes, client, paths) = with_lease(lease).await;
    drop(client.lock("warm").acquire().await.unwrap());
    nodes.until_empty().await;
    for path in &paths {
        path.delay(is_acquire, Direction::Requests, Duration::from_millis(100));
    }
    let lock = client.lock("x").owner(Owner::new());
    let other = lock.clone();
    let given_up = tokio::spawn(async move {
        pass(Duration::from_millis(60)).await;
        tokio::time::timeout(Duration::from_millis(60), other.acquire()).await
    });
    let handle = lock.acquire().await.unwrap().detach().await.unwrap();
    drop(given_up.await.unwrap());
    paths.iter().for_each(Proxy::remove_all);
    assert_eq!(nodes.client().await.release(&handle).await.unwrap(), Released::Now);
    let released = now();
    nodes.until_empty().await;
    assert!(released.elapsed() < lease / 2, "I8: it stayed until its lease ended");
}
