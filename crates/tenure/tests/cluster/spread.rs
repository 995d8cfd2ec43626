//! Calls for locks of several slots of a node.

use std::sync::Arc;
use std::time::Duration;

use tenure::engine::{
    AcquireRequest, Acquired, Engine, RedisEngine, ReleaseOutcome, ReleaseRequest, Renewal, Renewed,
};
use tenure::{About, Entry, Lease, LockName, Owner, Shape, StoreError};
use tenure_testkit::Cluster;
use tenure_testkit::resp::Reply;

use super::fixture::{
    LEASE, LONG, THIRDS, connect, key, name_in, names_in, on_all, pass, slot, until_queued, with,
};
use super::outage::counter;

/// So many locks, in as many slots.
const LOCKS: usize = 90;

fn request(name: &str) -> AcquireRequest {
    AcquireRequest {
        name: LockName::new(name).unwrap(),
        entry: Entry { owner: Owner::new(), number: 0 },
        shape: Shape::mutex(),
        lease: Lease::new(Duration::from_secs(60)).unwrap(),
        about: Arc::new(About::this_process()),
        queue: None,
        proposal: None,
    }
}

async fn acquire_all(
    engine: &RedisEngine,
    requests: &[AcquireRequest],
) -> Vec<Result<Acquired, StoreError>> {
    let mut outcomes = Vec::new();
    for answer in engine.acquire_all(requests.to_vec()) {
        outcomes.push(answer.await);
    }
    outcomes
}

async fn release_all(engine: &RedisEngine, requests: &[AcquireRequest]) -> Vec<ReleaseOutcome> {
    let release =
        |it: &AcquireRequest| engine.release(ReleaseRequest::new(it.name.clone(), it.entry));
    let mut outcomes = Vec::new();
    // All are sent before the first answer is awaited.
    for answer in requests.iter().map(release).collect::<Vec<_>>() {
        outcomes.push(answer.await.unwrap());
    }
    outcomes
}

fn is_granted(outcome: &Result<Acquired, StoreError>) -> bool {
    matches!(outcome, Ok(Acquired::Granted(_)))
}

/// How many scripts the nodes have run.
async fn calls(cluster: &Arc<Cluster>) -> u64 {
    with(cluster, |cluster| counter(cluster, "commandstats", "cmdstat_evalsha")).await
}

fn requests() -> Vec<AcquireRequest> {
    names_in(&(0..=16383)).take(LOCKS).map(|name| request(&name)).collect()
}

/// R20: operations on locks of many slots take few calls, renewals too.
async fn shares_calls(cluster: Arc<Cluster>) {
    let engine = RedisEngine::connect(&cluster.url()).await.unwrap();
    let requests = requests();
    let before = calls(&cluster).await;
    assert!(acquire_all(&engine, &requests).await.iter().all(is_granted));
    assert_eq!(calls(&cluster).await - before, 3, "one for each node");
    let renewal = |it: &AcquireRequest| Renewal {
        name: it.name.clone(),
        entry: it.entry,
        lease: it.lease,
        commit: None,
    };
    let before = calls(&cluster).await;
    let renewed = engine.renew(requests.iter().map(renewal).collect()).await.unwrap();
    assert!(renewed.iter().all(|it| matches!(it, Ok(Renewed::Extended))), "{renewed:?}");
    assert_eq!(calls(&cluster).await - before, 3, "one for each node");
    let before = calls(&cluster).await;
    let released = release_all(&engine, &requests).await;
    assert!(released.iter().all(|it| *it == ReleaseOutcome::Released { remaining: 0 }));
    let calls = calls(&cluster).await - before;
    assert!(calls < LOCKS as u64 / 3, "{calls} calls for {LOCKS} releases");
}

#[test]
fn operations_of_several_slots_share_a_call() {
    on_all(shares_calls);
}

/// R36: what is not plain, or not there, is done in a call of its own, and takes nothing from the others: a lock that is
/// held, one with waiters, one of another kind, a foreign key, and slots that are in transit, or have moved.
async fn leaves_the_rest(cluster: Arc<Cluster>) {
    let engine = RedisEngine::connect(&cluster.url()).await.unwrap();
    let other = connect(&cluster).await;
    let mut names = names_in(&THIRDS[0]).take(20);
    let mut next = || names.next().unwrap();
    let [held, waited_for, semaphore, foreign, ours] = [next(), next(), next(), next(), next()];
    let [in_transit, transferred, moved] = [next(), next(), next()];
    let _held = other.lock(&held).lease(LEASE).acquire().await.unwrap();
    let _holding = other.lock(&waited_for).lease(LEASE).acquire().await.unwrap();
    let waiter = other.lock(&waited_for).fair();
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    until_queued(&other, &waited_for, 1).await;
    let _permit = other.semaphore(&semaphore, 3).acquire().await.unwrap();
    let _transferred = other.lock(&transferred).lease(LEASE).acquire().await.unwrap();
    let mine = request(&ours);
    assert!(is_granted(&engine.acquire(mine.clone()).await));
    let (list, slots) = (key(&foreign), [slot(&in_transit), slot(&transferred), slot(&moved)]);
    with(&cluster, move |cluster| {
        cluster.command(0, &["RPUSH", &list, "1"]);
        cluster.begin_migration(slots[0], 1);
        cluster.begin_migration(slots[1], 1);
        cluster.move_keys(slots[1], 1, tenure_testkit::KeyOrder::AsStored, 10);
        cluster.migrate(slots[2], 1);
    })
    .await;
    let odd = [&held, &waited_for, &semaphore, &foreign, &in_transit, &transferred, &moved];
    let mut requests: Vec<_> = odd.into_iter().map(|name| request(name)).collect();
    requests.push(mine);
    requests.extend(names.map(|name| request(&name)));
    let outcomes = acquire_all(&engine, &requests).await;
    assert!(matches!(outcomes[0], Ok(Acquired::Busy)), "held: {:?}", outcomes[0]);
    assert!(matches!(outcomes[1], Ok(Acquired::Busy)), "with a waiter: {:?}", outcomes[1]);
    assert!(matches!(outcomes[2], Ok(Acquired::Mismatch { .. })), "{:?}", outcomes[2]);
    let error = outcomes[3].as_ref().unwrap_err();
    assert!(error.is_answer(), "a foreign key: {error}");
    assert!(is_granted(&outcomes[4]), "in transit: {:?}", outcomes[4]);
    assert!(matches!(outcomes[5], Ok(Acquired::Busy)), "transferred: {:?}", outcomes[5]);
    assert!(is_granted(&outcomes[6]), "moved: {:?}", outcomes[6]);
    assert!(outcomes[7..].iter().all(is_granted), "the others: {outcomes:?}");
    let list = key(&foreign);
    let left = with(&cluster, move |cluster| cluster.command(0, &["LLEN", &list])).await;
    assert_eq!(left, Reply::Integer(1), "a foreign key is left alone");
    waiting.abort();
}

#[test]
fn what_is_not_plain_is_done_alone() {
    on_all(leaves_the_rest);
}

/// A node that has lost its scripts performs the operations all the same, and shares calls again.
async fn loads_scripts_again(cluster: Arc<Cluster>) {
    let engine = RedisEngine::connect(&cluster.url()).await.unwrap();
    let requests = requests();
    with(&cluster, |cluster| {
        (0..3).for_each(|node| drop(cluster.command(node, &["SCRIPT", "FLUSH"])));
    })
    .await;
    assert!(acquire_all(&engine, &requests).await.iter().all(is_granted));
    release_all(&engine, &requests).await;
    let before = calls(&cluster).await;
    assert!(acquire_all(&engine, &requests).await.iter().all(is_granted));
    assert_eq!(calls(&cluster).await - before, 3, "one for each node");
}

#[test]
fn a_node_that_lost_its_scripts_shares_calls_again() {
    on_all(loads_scripts_again);
}

/// I10: the operations of one client on one name are performed in their order, also when some are sent again alone.
async fn keeps_the_order(cluster: Arc<Cluster>) {
    let client = connect(&cluster).await;
    let name = name_in(&THIRDS[0]);
    let others: Vec<_> = names_in(&THIRDS[0]).skip(1).take(30).collect();
    for _ in 0..50 {
        let busy: Vec<_> = others
            .iter()
            .map(|name| {
                let lock = client.lock(name).lease(LEASE);
                tokio::spawn(async move { drop(lock.acquire().await.unwrap()) })
            })
            .collect();
        let guard = client.lock(&name).lease(LEASE).acquire().await.unwrap();
        drop(guard);
        assert!(client.lock(&name).try_acquire().await.unwrap().is_some(), "it was released");
        for task in busy {
            task.await.unwrap();
        }
    }
}

#[test]
fn a_released_lock_is_free_though_calls_are_shared() {
    on_all(keeps_the_order);
}

/// Rule 13: a slot had moved. A release in a spread call was sent again to the old node, while the acquire behind it was
/// redirected to the new one: it came first, and found the lock taken.
async fn keeps_the_order_of_a_moved_slot(cluster: Arc<Cluster>) {
    let engine = RedisEngine::connect(&cluster.url()).await.unwrap();
    let mut names = names_in(&(200..=5000));
    for is_shared in [true, false, true, false, true, false] {
        let count = if is_shared { 20 } else { 1 };
        let requests: Vec<_> = names.by_ref().take(count).map(|name| request(&name)).collect();
        assert!(acquire_all(&engine, &requests).await.iter().all(is_granted));
        let moved = &requests[count / 2];
        let to_move = slot(moved.name.as_str());
        with(&cluster, move |cluster| cluster.migrate(to_move, 1)).await;
        let release =
            |it: &AcquireRequest| engine.release(ReleaseRequest::new(it.name.clone(), it.entry));
        let released: Vec<_> = requests.iter().map(release).collect();
        let again = engine.acquire(request(moved.name.as_str())).await;
        assert!(is_granted(&again), "the release precedes it: {again:?}");
        for answer in released {
            assert_eq!(answer.await.unwrap(), ReleaseOutcome::Released { remaining: 0 });
        }
    }
}

#[test]
fn an_acquire_does_not_overtake_a_release_though_the_slot_has_moved() {
    on_all(keeps_the_order_of_a_moved_slot);
}

/// I7: a waiter asked, and the answer was late. While it was being confirmed, the waiter was granted the lock by a message, and
/// released it. What the spread call had left undone was then sent again: it held a lock that no client used.
async fn leaves_no_hold_of_a_late_question(cluster: Arc<Cluster>) {
    let (holder, waiter) = (connect(&cluster).await, connect(&cluster).await);
    let names: Vec<_> = names_in(&THIRDS[0]).take(24).collect();
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for name in &names {
        held.push(holder.lock(name).lease(LEASE).acquire().await.unwrap());
        let lock = waiter.lock(name).lease(LEASE);
        waiting.push(tokio::spawn(async move { lock.acquire().await.unwrap().release().await }));
        until_queued(&holder, name, 1).await;
    }
    pass(Duration::from_millis(300)).await;
    // Without its subscription every waiter asks, and the answers are late.
    with(&cluster, |cluster| {
        cluster.command(0, &["CLIENT", "PAUSE", "700", "WRITE"]);
        cluster.command(0, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    })
    .await;
    pass(Duration::from_millis(300)).await;
    let releasing = tokio::spawn(held.swap_remove(8).release());
    let stop = |is_stopped| {
        move |cluster: &Cluster| (1..6).for_each(|node| cluster.nodes[node].pause(is_stopped))
    };
    // No node confirms, for a while.
    with(&cluster, stop(true)).await;
    pass(Duration::from_millis(1200)).await;
    with(&cluster, stop(false)).await;
    let _ = releasing.await.unwrap();
    let _ = tokio::time::timeout(LONG, waiting.swap_remove(8)).await.expect("it is served");
    let next = holder.lock(&names[8]).acquire_within(Duration::from_secs(10)).await;
    drop(next.expect("it is free long before a lease ends"));
    waiting.iter().for_each(|it| it.abort());
}

#[test]
fn a_late_question_leaves_no_hold() {
    on_all(leaves_no_hold_of_a_late_question);
}
