//! Holds that another client releases by their handle.

use super::*;

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
