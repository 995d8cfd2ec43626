//! Holds that another client releases by their handle.

use super::kinds::QUEUE;
use super::*;
use crate::Kind;

/// A hold that two of three nodes know by another number, because they had missed the end of an earlier one.
fn renumbered(scene: &Scene) -> Entry {
    let entry = someone();
    renumber(scene, entry);
    entry
}

/// The same, of this entry.
pub(super) fn renumber(scene: &Scene, entry: Entry) {
    let holders = block_on(scene.stores[0].inspect(name())).unwrap().holders;
    let others = holders.first().map_or(0, |holder| holder.entries);
    acquire(scene, entry).unwrap();
    scene.set_down(0, true);
    scene.set_down(1, true);
    block_on(scene.quorum.release(ReleaseRequest::new(name(), entry))).unwrap_err();
    scene.set_down(0, false);
    scene.set_down(1, false);
    assert!(matches!(acquire(scene, entry), Ok(Acquired::Granted(_))));
    // The engine's thread asks the nodes again for the end of the first one.
    for node in 0..2 {
        while block_on(scene.stores[node].inspect(name())).unwrap().holders[0].entries > others + 1
        {
            std::thread::yield_now();
        }
    }
}

/// I6: a client that has the handle alone could not release the lock: it was said to be lost, and stayed until its lease ended.
#[test]
fn a_detached_hold_has_one_entry_at_all_nodes() {
    let scene = Scene::new();
    let entry = renumbered(&scene);
    let common = block_on(scene.quorum.entry_to_detach(&name(), entry)).unwrap();
    scene.quorum.detach(&name(), entry).unwrap();
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

/// I1: an owner acquires again what it has detached, and reaches a node that has lost the hold. The process with the handle must not
/// count that node, which may be free at any time.
#[test]
fn a_handle_does_not_count_a_later_entry_of_its_owner() {
    let (scene, entry) = (Scene::new(), someone());
    let other = scene.another();
    assert!(matches!(acquire(&scene, entry), Ok(Acquired::Granted(_))));
    scene.quorum.detach(&name(), entry).unwrap();
    let renewal = Renewal { name: name(), entry, lease: Lease::DEFAULT, commit: None };
    let renew = || block_on(other.quorum.renew(vec![renewal.clone()])).unwrap().remove(0);
    block_on(scene.stores[2].release(ReleaseRequest::new(name(), entry))).unwrap();
    assert_eq!(renew().unwrap(), Renewed::Extended, "by the nodes 0 and 1");
    scene.set_down(0, true);
    let later = Entry { number: 7, ..entry };
    assert!(matches!(acquire(&scene, later), Ok(Acquired::Granted(_))));
    assert_eq!(renew().unwrap(), Renewed::Extended, "by the nodes 0 and 1");
    other.set_down(0, true);
    assert!(!matches!(renew(), Ok(Renewed::Extended)), "node 2 has the later entry alone");
    other.set_down(0, false);
    assert_eq!(renew().unwrap(), Renewed::Extended);
    block_on(scene.quorum.release(ReleaseRequest::new(name(), later))).unwrap();
    assert_eq!(scene.fence_at(2, entry.owner), None);
    assert_eq!(renew().unwrap(), Renewed::Extended);
}

/// I1: a node has a writer without its client's knowledge, and was to end it. The process with the handle does not count that node,
/// which ends what it was to end.
#[test]
fn a_node_that_has_another_number_does_not_count_for_a_handle() {
    let (scene, entry) = (Scene::new(), someone());
    let other = scene.another();
    let shape = Shape::new(Kind::ReadWrite, Shape::MAX_LIMIT, Shape::MAX_LIMIT).unwrap();
    let writer = AcquireRequest { shape, queue: Some(QUEUE), ..request(entry, None) };
    scene.set_down(0, true);
    assert!(matches!(block_on(scene.quorum.acquire(writer.clone())), Ok(Acquired::Granted(_))));
    block_on(scene.stores[0].acquire(writer)).unwrap();
    let keep = ReleaseRequest { keep: 1, ..ReleaseRequest::new(name(), entry) };
    block_on(scene.quorum.release(keep)).unwrap();
    let common = block_on(scene.quorum.entry_to_detach(&name(), entry)).unwrap();
    scene.quorum.detach(&name(), entry).unwrap();
    let renewal = Renewal { name: name(), entry: common, lease: Lease::DEFAULT, commit: None };
    let renew = || block_on(other.quorum.renew(vec![renewal.clone()])).unwrap().remove(0);
    assert_eq!(renew().unwrap(), Renewed::Extended, "by the nodes 1 and 2");
    other.set_down(1, true);
    assert!(!matches!(renew(), Ok(Renewed::Extended)), "node 0 has another number");
    scene.set_down(0, false);
    while scene.fence_at(0, entry.owner).is_some() {
        std::thread::yield_now();
    }
    other.set_down(1, false);
    assert_eq!(renew().unwrap(), Renewed::Extended);
}

/// I1: two entries of one owner were granted together. A node that has lost one of them would free the lock with the end of the other.
#[test]
fn a_node_counts_only_with_all_entries_of_its_client() {
    let (scene, before, owner) = (Scene::new(), someone(), Owner::new());
    let [one, two] = [1, 2].map(|number| Entry { owner, number });
    acquire(&scene, before).unwrap();
    for entry in [one, two] {
        let waiting = AcquireRequest { queue: Some(QUEUE), ..request(entry, None) };
        let answer = block_on(scene.quorum.acquire(waiting)).unwrap();
        assert!(matches!(answer, Acquired::Queued(_)));
    }
    block_on(scene.quorum.release(ReleaseRequest::new(name(), before))).unwrap();
    let renewal = Renewal { name: name(), entry: one, lease: Lease::DEFAULT, commit: None };
    let renew = || block_on(scene.quorum.renew(vec![renewal.clone()])).unwrap().remove(0);
    scene.set_down(2, true);
    assert_eq!(renew().unwrap(), Renewed::Extended, "nodes 0 and 1 have both");
    block_on(scene.stores[0].release(ReleaseRequest::new(name(), two))).unwrap();
    assert!(!matches!(renew(), Ok(Renewed::Extended)), "node 0 has one of two");
    scene.set_down(2, false);
    assert_eq!(renew().unwrap(), Renewed::Extended, "nodes 1 and 2 have both");
    scene.set_down(2, true);
    assert_eq!(renew().unwrap(), Renewed::Extended, "node 0 was repaired");
}
