//! Holds that another client releases by their handle.

use super::kinds::QUEUE;
use super::*;
use crate::Kind;

/// A hold that two of three nodes know by another number, because they had missed the end of an earlier one.
fn renumbered(scene: &Scene) -> Entry {
    let entry = someone();
    acquire(scene, entry).unwrap();
    scene.set_down(0, true);
    scene.set_down(1, true);
    block_on(scene.quorum.release(ReleaseRequest::new(name(), entry))).unwrap_err();
    scene.set_down(0, false);
    scene.set_down(1, false);
    assert!(matches!(acquire(scene, entry), Ok(Acquired::Granted(_))));
    // The engine's thread asks the nodes again for the end of the first one.
    for node in 0..2 {
        while block_on(scene.stores[node].inspect(name())).unwrap().holders[0].entries > 1 {
            std::thread::yield_now();
        }
    }
    entry
}

/// I6: a client that has the handle alone could not release the lock: it was said to be lost, and stayed until its lease ended.
#[test]
fn a_detached_hold_has_one_entry_at_all_nodes() {
    let scene = Scene::new();
    let entry = renumbered(&scene);
    let common = block_on(scene.quorum.entry_to_detach(&name(), entry)).unwrap();
    scene.quorum.detach(&name(), entry.owner).unwrap();
    let other = scene.another();
    let released = block_on(other.quorum.release(ReleaseRequest::new(name(), common))).unwrap();
    assert_eq!(released, ReleaseOutcome::Released { remaining: 0 });
    assert!((0..3).all(|node| scene.fence_at(node, entry.owner).is_none()));
}

/// If it is not detached after all, the guard releases it as before.
#[test]
fn a_hold_that_was_to_be_detached_is_released_by_its_guard() {
    let scene = Scene::new();
    let entry = renumbered(&scene);
    scene.set_down(2, true);
    block_on(scene.quorum.entry_to_detach(&name(), entry)).unwrap();
    scene.set_down(2, false);
    let released = block_on(scene.quorum.release(ReleaseRequest::new(name(), entry))).unwrap();
    assert_eq!(released, ReleaseOutcome::Released { remaining: 0 });
    assert!((0..3).all(|node| scene.fence_at(node, entry.owner).is_none()));
    assert!(scene.quorum.quorum.holds.is_empty());
}

/// I1: a node has a writer without its client's knowledge, and was to end it. The process with the handle counts that node.
#[test]
fn what_was_to_end_is_not_ended_once_the_hold_was_detached() {
    let (scene, entry) = (Scene::new(), someone());
    let other = scene.another();
    let shape = Shape::new(Kind::ReadWrite, Shape::MAX_LIMIT, Shape::MAX_LIMIT).unwrap();
    let writer = AcquireRequest { shape, queue: Some(QUEUE), ..request(entry, None) };
    scene.set_down(0, true);
    assert!(matches!(block_on(scene.quorum.acquire(writer.clone())), Ok(Acquired::Granted(_))));
    block_on(scene.stores[0].acquire(writer)).unwrap();
    let keep = ReleaseRequest { keep: 1, ..ReleaseRequest::new(name(), entry) };
    block_on(scene.quorum.release(keep)).unwrap();
    block_on(scene.quorum.entry_to_detach(&name(), entry)).unwrap();
    scene.quorum.detach(&name(), entry.owner).unwrap();
    other.set_down(1, true);
    let renewal = Renewal { name: name(), owner: entry.owner, lease: Lease::DEFAULT, commit: None };
    let renewed = block_on(other.quorum.renew(vec![renewal])).unwrap();
    assert_eq!(renewed[0].as_ref().unwrap(), &Renewed::Extended, "by the nodes 0 and 2");
    scene.set_down(0, false);
    let until = clock::now() + Duration::from_millis(2_500);
    while clock::now() < until {
        assert!(scene.fence_at(0, entry.owner).is_some(), "I1: node 0 counts");
        std::thread::yield_now();
    }
}
