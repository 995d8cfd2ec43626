//! Votes that are split between owners, some of which have several waiters.

use super::kinds::QUEUE;
use super::*;
use crate::Tenure;
use crate::engine::Grant;

/// How many of so many waiters of each of two owners, which have one node each, are served. The third node is down.
fn served_after_a_split(each: usize) -> usize {
    let (scene, owners) = (Scene::new(), [Owner::new(), Owner::new()]);
    let first = owners.map(|owner| Entry { owner, number: 99 });
    for (store, entry) in scene.stores.iter().zip(first) {
        block_on(store.acquire(request(entry, None))).unwrap();
    }
    let mut waiters = Vec::new();
    for owner in owners {
        let client = scene.another();
        client.set_down(2, true);
        let tenure = Tenure::builder().engine(client.quorum).unwrap();
        for _ in 0..each {
            let lock = tenure.lock("x").owner(owner).blocking();
            let acquire = move || lock.acquire_within(Duration::from_secs(10)).map(drop).is_ok();
            waiters.push(std::thread::spawn(acquire));
        }
    }
    let waiting = |node: usize| block_on(scene.stores[node].inspect(name())).unwrap().waiting;
    while waiting(0) + waiting(1) < 2 * each {
        std::thread::yield_now();
    }
    for (store, entry) in scene.stores.iter().zip(first) {
        block_on(store.release(ReleaseRequest::new(name(), entry))).unwrap();
    }
    waiters.into_iter().map(|it| it.join().unwrap()).filter(|is_served| *is_served).count()
}

/// I7: a waiter that gives a node back to end the split must not find it again at once by another waiter of its owner.
#[test]
fn a_split_between_several_waiters_of_each_owner_ends() {
    for each in 1..=3 {
        assert_eq!(served_after_a_split(each), 2 * each, "{each} of each");
    }
}

/// I7: an entry that no client knows any more ends with its lease, although waiters of its owner ask again and again.
#[test]
fn a_waiter_that_asks_again_does_not_extend_what_its_owner_has() {
    let store = MemoryEngine::new();
    let (owner, lease) = (Owner::new(), Lease::new(Duration::from_millis(300)).unwrap());
    let entry = |number| Entry { owner, number };
    let left = || block_on(store.inspect(name())).unwrap().holders.first().map(|it| it.lease_left);
    let fence = || Some(clock::both().wall.as_micros());
    let forgotten = AcquireRequest { lease, ..request(entry(1), fence()) };
    block_on(store.acquire(forgotten)).unwrap();
    let mut asks = AcquireRequest { queue: Some(QUEUE), ..request(entry(2), fence()) };
    asks.proposal.iter_mut().for_each(|it| it.is_repeated = true);
    let granted = block_on(store.acquire(asks.clone())).unwrap();
    let Acquired::Granted(grant) = granted else { panic!("{granted:?}") };
    assert!(grant.lease <= lease.duration() && left().unwrap() <= lease.duration());
    // A first question does.
    asks.entry = entry(3);
    asks.proposal.iter_mut().for_each(|it| it.is_repeated = false);
    let granted = block_on(store.acquire(asks)).unwrap();
    assert!(
        matches!(granted, Acquired::Granted(Grant { lease, .. }) if lease == Lease::DEFAULT.duration())
    );
}

/// A waiter gives node 0 back, by a cancel that stays on the way. Then its attempt fails, because the nodes that hand over to it give different
/// fences, and one of them cannot store the larger one. The driver asks again for the same entry, which nodes 0 and 1 grant.
fn give_back_on_the_way() -> Scene {
    let (scene, entry, others) = (Scene::new(), someone(), [someone(), someone()]);
    for (store, other) in scene.stores[1..].iter().zip(others) {
        block_on(store.acquire(request(other, None))).unwrap();
    }
    *lock(&scene.cancels) = Some(Vec::new());
    let asks = AcquireRequest { queue: Some(QUEUE), ..request(entry, None) };
    let ask = || block_on(scene.quorum.acquire(asks.clone()));
    assert!(matches!(ask(), Ok(Acquired::Queued(_))));
    while lock(&scene.cancels).as_ref().is_some_and(Vec::is_empty) {
        std::thread::yield_now();
    }
    scene.set_down(2, true);
    // A forced release raises the fence.
    let (reason, by) = (Arc::from("a test"), Arc::new(About::this_process()));
    let force = ForceRequest { name: name(), expected: None, reason, by };
    block_on(scene.stores[1].force_release(force)).unwrap();
    block_on(scene.stores[2].release(ReleaseRequest::new(name(), others[1]))).unwrap();
    ask().unwrap_err();
    assert!(matches!(ask(), Ok(Acquired::Granted(_))));
    scene.set_down(2, false);
    // Its own part there is ended, so that another client may have this node.
    while scene.fence_at(2, entry.owner).is_some() {
        std::thread::yield_now();
    }
    scene
}

/// I1: what was given back has another number also in the attempt that follows.
#[test]
fn a_give_back_that_arrives_late_does_not_end_a_later_grant() {
    let scene = give_back_on_the_way();
    let (late, lost) = lock(&scene.cancels).take().unwrap().remove(0);
    drop(lost);
    block_on(scene.stores[0].cancel(late)).unwrap();
    assert_eq!(acquire(&scene.another(), someone()).unwrap(), Acquired::Busy, "two holders");
}

/// I1: neither does the reminder of it, which the client sends itself.
#[test]
fn the_reminder_of_a_give_back_does_not_end_a_later_grant() {
    let scene = give_back_on_the_way();
    drop(lock(&scene.cancels).take());
    let until = clock::now() + Duration::from_millis(2_500);
    while clock::now() < until {
        std::thread::yield_now();
    }
    assert_eq!(acquire(&scene.another(), someone()).unwrap(), Acquired::Busy, "two holders");
}
