//! Holds of which a part stays: a writer that became a reader, an owner with several entries, or one that acquires again what it
//! has detached.

use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use tenure::engine::{
    AcquireRequest, Acquired, Engine, RedisEngine, ReleaseOutcome, ReleaseRequest,
};
use tenure::{Entry, Kind, Owner, Released, Shape, Wait, acquire_all};
use tenure_testkit::proxy::Direction;

use super::ends::{distant, with_lease};
use super::entries::{cut_off, is_cancel};
use super::fixture::{LONGEST, now, pass, until};
use super::gate::gated;
use super::handles::{is_acquire, request};

/// I1: the answer of a node is slow when a writer becomes a reader, and the cancel that is sent there is lost. The node counted when
/// its answer came, and the reminder of the cancel ended what it had.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_does_not_rely_on_a_node_that_ends_its_former_entry() {
    let lease = Duration::from_secs(2);
    let (nodes, first, paths) = with_lease(lease).await;
    let (other, _other_paths) = distant(&nodes, lease).await;
    drop(first.lock("warm").acquire().await.unwrap());
    nodes.until_empty().await;
    let reply = paths[0].hold(is_acquire, Direction::Replies);
    let writer = first.rwlock("x").write().await.unwrap();
    until("node 0 has it", async || nodes.locks_at(0).await == 1).await;
    let cancel = paths[0].drop_request(is_cancel, 1);
    let reader = writer.downgrade().await;
    until("the cancel is lost", async || paths[0].strikes(cancel) > 0).await;
    paths[0].remove(reply);
    cut_off(&paths[1]);
    let began = now();
    while !reader.is_lost() && began.elapsed() < 3 * lease {
        if let Ok(Some(second)) = other.rwlock("x").try_write().await {
            assert!(second.is_lost() || reader.is_lost(), "I1: a reader and a writer");
        }
        pass(Duration::from_millis(20)).await;
    }
}

/// A question about a hold is being sent while the hold gives back permits, or its first entry ends. The thread that sent it took the
/// hold for one that was released, and ended it at every node.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_kept_survives_a_question_that_is_being_sent() {
    for is_writer in [true, false] {
        let (servers, gate, engine) = gated().await;
        let held = request(Owner::new(), Duration::from_secs(10));
        let all = Shape::MAX_LIMIT;
        let shape = Shape::new(Kind::ReadWrite, all, if is_writer { all } else { 1 }).unwrap();
        let held = AcquireRequest { shape, ..held };
        assert!(matches!(engine.acquire(held.clone()).await.unwrap(), Acquired::Granted(_)));
        if !is_writer {
            let again = Entry { number: held.entry.number + 1, ..held.entry };
            let again = AcquireRequest { entry: again, ..held.clone() };
            assert!(matches!(engine.acquire(again).await.unwrap(), Acquired::Granted(_)));
        }
        gate.shut(true);
        let (asking, question) = (engine.clone(), held.clone());
        let sending = thread::spawn(move || asking.acquire(question));
        until("a thread sends", async || gate.is_awaited()).await;
        let release = ReleaseRequest::new(held.name.clone(), held.entry);
        let release = ReleaseRequest { keep: u32::from(is_writer), ..release };
        let released = engine.release(release).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released { remaining: 1 });
        gate.shut(false);
        let _ = sending.join().unwrap().await;
        pass(Duration::from_millis(500)).await;
        for server in &servers {
            let node = RedisEngine::connect(&server.url()).await.unwrap();
            assert_eq!(node.inspect(held.name.clone()).await.unwrap().holding, 1);
        }
    }
}

/// A client that had released one handle took the next one of the same owner for released, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_adopts_again_what_it_has_released() {
    let (nodes, first, _paths) = with_lease(LONGEST).await;
    let second = nodes.client().await;
    let lock = first.lock("x").owner(Owner::new());
    for _ in 0..3 {
        let guard = lock.acquire().await.unwrap();
        for node in 0..3 {
            until("the node has it", async || nodes.locks_at(node).await == 1).await;
        }
        let handle = guard.detach().await.unwrap();
        // The last answer to the release before may be under way.
        let began = now();
        let adopted = loop {
            match second.adopt(handle.clone()).await {
                Ok(adopted) => break adopted,
                Err(error) => assert!(began.elapsed() < LONGEST / 2, "{error}"),
            }
            pass(Duration::from_millis(20)).await;
        };
        assert_eq!(adopted.release().await.unwrap(), Released::Now);
        nodes.until_empty().await;
    }
}

/// I8: an owner has detached a lock, and acquires it again. That acquire was not cancelled when it was dropped.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_after_a_detach_is_cancelled_when_it_is_dropped() {
    let lease = Duration::from_secs(60);
    let (nodes, first, _paths) = with_lease(lease).await;
    let lock = first.lock("x").owner(Owner::new());
    let handle = lock.acquire().await.unwrap().detach().await.unwrap();
    assert_eq!(first.release(&handle).await.unwrap(), Released::Now);
    nodes.until_empty().await;
    let mut again = Box::pin(lock.acquire());
    let polled = again.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    for node in 0..3 {
        until("the node has it", async || nodes.locks_at(node).await == 1).await;
    }
    // It is granted by now, and the caller does not know.
    pass(Duration::from_millis(100)).await;
    drop((again, polled));
    let dropped = now();
    nodes.until_empty().await;
    assert!(dropped.elapsed() < lease / 2, "I8: it ended with its lease");
}

/// A semaphore needs all nodes, and one of them is silent. The mutexes that were renewed together with it were lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_node_delays_no_renewal_that_needs_a_majority() {
    let lease = Duration::from_secs(2);
    let (_nodes, client, paths) = with_lease(LONGEST).await;
    drop(client.lock("warm").acquire().await.unwrap());
    let permit = client.semaphore("s", 2).permits(1).lease(lease);
    let locks = [client.lock("a").lease(lease), client.lock("b").lease(lease), permit];
    let guards = acquire_all(locks, Wait::forever()).await.unwrap();
    paths[2].black_hole();
    pass(3 * lease).await;
    for name in ["a", "b"] {
        guards.get(name).unwrap().ensure_held().unwrap();
    }
}

/// I9: a node has lost one of two locks, and another node is silent, so that it is not known for seconds whether that lock is held. The
/// other one, which was renewed in the same call, was lost with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_is_not_decided_delays_no_other() {
    let lease = Duration::from_secs(2);
    let (nodes, client, paths) = with_lease(LONGEST).await;
    drop(client.lock("warm").acquire().await.unwrap());
    nodes.until_empty().await;
    let locks = [client.lock("a").lease(lease), client.lock("b").lease(lease)];
    let guards = acquire_all(locks, Wait::forever()).await.unwrap();
    for node in 0..3 {
        until("the node has both", async || nodes.locks_at(node).await == 2).await;
    }
    paths[2].black_hole();
    let mut node = nodes.0[0].connect().unwrap();
    node.command(&["DEL", "tenure:{a}"]).unwrap();
    until("it is lost", async || guards.get("a").unwrap().is_lost()).await;
    pass(lease).await;
    guards.get("b").unwrap().ensure_held().unwrap();
}
