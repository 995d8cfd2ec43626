//! Barriers, latches, read-write locks and semaphores, of which nodes have missed something.

use super::*;
use crate::Kind;
use crate::engine::Queueing;

pub(super) const QUEUE: Queueing =
    Queueing { heartbeat: Duration::from_secs(15), claim: Duration::from_secs(3), fences: 1 };

/// A request of this shape, which waits.
fn waiting(entry: Entry, kind: Kind, (limit, permits): (u32, u32)) -> AcquireRequest {
    let shape = Shape::new(kind, limit, permits).unwrap();
    AcquireRequest { shape, queue: Some(QUEUE), ..request(entry, None) }
}

impl Scene {
    fn ask(&self, request: AcquireRequest) -> Acquired {
        block_on(self.quorum.acquire(request)).unwrap()
    }

    fn info_at(&self, node: usize) -> LockInfo {
        block_on(self.stores[node].inspect(name())).unwrap()
    }
}

/// I6: a party that has passed a barrier at a majority does not stay in the queue of the other node, where it would be
/// counted the next time.
#[test]
fn a_party_that_has_passed_a_barrier_waits_at_no_node() {
    let (first, second) = (Scene::new(), someone());
    let (other, entry) = (first.another(), someone());
    other.set_down(2, true);
    let party = |entry| waiting(entry, Kind::Barrier, (2, 1));
    assert!(matches!(first.ask(party(entry)), Acquired::Queued(_)));
    assert!(matches!(other.ask(party(second)), Acquired::Granted(_)), "both are here");
    // The barrier has not opened there. The first party leaves before it is told, and so before the next round.
    let until = clock::now() + Duration::from_secs(5);
    while first.info_at(2).waiting > 0 {
        assert!(clock::now() < until, "it waits there until it is released");
        std::thread::yield_now();
    }
    block_on(first.quorum.release(ReleaseRequest::new(name(), entry))).unwrap();
    block_on(other.quorum.release(ReleaseRequest::new(name(), second))).unwrap();
    for node in 0..3 {
        assert_eq!(
            (first.info_at(node).holding, first.info_at(node).waiting),
            (0, 0),
            "node {node}"
        );
    }
    assert!(first.quorum.quorum.holds.is_empty() && other.quorum.quorum.holds.is_empty());
}

/// I6, I7: two counts that were confirmed by different majorities open the latch once all nodes are back.
#[test]
fn a_count_that_a_node_has_missed_is_delivered() {
    let first = Scene::new();
    let second = first.another();
    first.set_down(2, true);
    second.set_down(0, true);
    let count = |entry| waiting(entry, Kind::Latch, (2, 1));
    let entries = [someone(), someone()];
    assert!(matches!(first.ask(count(entries[0])), Acquired::Granted(_)));
    assert!(matches!(second.ask(count(entries[1])), Acquired::Granted(_)));
    assert_eq!([0, 1, 2].map(|node| first.info_at(node).holding), [1, 2, 1]);
    second.set_down(0, false);
    let waiter = waiting(someone(), Kind::Latch, (2, 0));
    assert!(matches!(second.ask(waiter), Acquired::Queued(_)), "it is open at one node");
    first.set_down(2, false);
    // It passes, by the wake-ups of the nodes, and the counts are delivered.
    let is_over = |it: &Quorum| lock(&it.attempts).is_empty() && it.counts.are_delivered(3);
    while ![&first, &second].iter().all(|scene| is_over(&scene.quorum.quorum)) {
        std::thread::yield_now();
    }
    assert_eq!([0, 1, 2].map(|node| first.info_at(node).holding), [2, 2, 2]);
}

/// I7: those who counted do not reach the other nodes any more, or have ended. A majority shows each count.
#[test]
fn a_latch_opens_by_the_counts_that_a_majority_shows() {
    let first = Scene::new();
    let (second, third) = (first.another(), first.another());
    first.set_down(2, true);
    second.set_down(0, true);
    let count = || waiting(someone(), Kind::Latch, (2, 1));
    assert!(matches!(first.ask(count()), Acquired::Granted(_)));
    assert!(matches!(second.ask(count()), Acquired::Granted(_)));
    let waiter = waiting(someone(), Kind::Latch, (2, 0));
    assert!(matches!(third.ask(waiter), Acquired::Queued(_)), "it is open at one node");
    let waits = |node: usize| third.info_at(node).waiting > 0;
    while !lock(&third.quorum.quorum.attempts).is_empty() || (0..3).any(waits) {
        std::thread::yield_now();
    }
    assert_eq!([0, 1, 2].map(|node| third.info_at(node).holding), [1, 2, 1], "as before");
}

/// A count that was taken away by force does not come back at the node that had missed it.
#[test]
fn a_count_that_was_taken_away_is_not_delivered() {
    let scene = Scene::new();
    let entry = someone();
    scene.set_down(2, true);
    assert!(matches!(scene.ask(waiting(entry, Kind::Latch, (2, 1))), Acquired::Granted(_)));
    assert!(!scene.quorum.quorum.counts.are_delivered(3));
    let by = Arc::new(About::this_process());
    let force = ForceRequest { name: name(), expected: None, reason: "a test".into(), by };
    block_on(scene.quorum.force_release(force)).unwrap();
    assert!(scene.quorum.quorum.counts.are_delivered(3));
}

const ALL: u32 = Shape::MAX_LIMIT;

fn writer(entry: Entry) -> AcquireRequest {
    waiting(entry, Kind::ReadWrite, (ALL, ALL))
}

fn reader(entry: Entry) -> AcquireRequest {
    waiting(entry, Kind::ReadWrite, (ALL, 1))
}

impl Scene {
    fn downgrade(&self, entry: Entry) {
        let request = ReleaseRequest { keep: 1, ..ReleaseRequest::new(name(), entry) };
        let outcome = block_on(self.quorum.release(request)).unwrap();
        assert_eq!(outcome, ReleaseOutcome::Released { remaining: 1 });
    }

    fn renew(&self, entry: Entry) {
        let renewal = Renewal { name: name(), entry, lease: Lease::DEFAULT, commit: None };
        let renewed = block_on(self.quorum.renew(vec![renewal])).unwrap();
        assert_eq!(renewed[0].as_ref().unwrap(), &Renewed::Extended);
    }

    /// How many permits the only holder has at a node.
    fn permits_at(&self, node: usize) -> Option<u32> {
        self.info_at(node).holders.first().map(|holder| holder.permits)
    }

    /// A node forgets an entry.
    fn forget_at(&self, node: usize, entry: Entry) {
        block_on(self.stores[node].release(ReleaseRequest::new(name(), entry))).unwrap();
    }
}

/// A writer that has become a reader gives back its permits also at a node that was down when it did.
#[test]
fn a_node_that_missed_a_downgrade_gets_it_later() {
    let scene = Scene::new();
    let entry = someone();
    assert!(matches!(scene.ask(writer(entry)), Acquired::Granted(_)));
    scene.set_down(0, true);
    scene.downgrade(entry);
    scene.set_down(0, false);
    while scene.permits_at(0) != Some(1) {
        std::thread::yield_now();
    }
    scene.renew(entry);
    assert_eq!([0, 1, 2].map(|node| scene.permits_at(node)), [Some(1); 3]);
}

/// A node has a writer without this client's knowledge, because its answer was lost, and missed its downgrade. It is repaired, by
/// another entry of the owner, before the first one ends: it kept the permits of the writer.
#[test]
fn a_node_that_is_repaired_beside_the_entry_of_a_writer_gives_its_permits_back() {
    let scene = Scene::new();
    let entry = someone();
    scene.set_down(0, true);
    assert!(matches!(scene.ask(writer(entry)), Acquired::Granted(_)));
    block_on(scene.stores[0].acquire(writer(entry))).unwrap();
    scene.downgrade(entry);
    scene.set_down(0, false);
    scene.renew(entry);
    let until = clock::now() + Duration::from_secs(30);
    while scene.permits_at(0) != Some(1) {
        assert!(clock::now() < until, "the node has {:?} permits", scene.permits_at(0));
        std::thread::yield_now();
    }
    assert_eq!(scene.info_at(0).holders[0].entries, 1);
}

/// I1: a node that was repaired is not ended by a reminder that was noted before, also if the hold was asked for once more.
#[test]
fn a_repair_has_a_number_that_is_not_being_ended() {
    for is_asked_again in [false, true] {
        let scene = Scene::new();
        let entry = someone();
        scene.set_down(0, true);
        assert!(matches!(scene.ask(writer(entry)), Acquired::Granted(_)));
        if is_asked_again {
            assert!(matches!(scene.ask(writer(entry)), Acquired::Granted(_)));
        }
        scene.downgrade(entry);
        scene.set_down(0, false);
        scene.renew(entry);
        scene.set_down(1, true);
        scene.renew(entry);
        let until = clock::now() + Duration::from_millis(2_500);
        while clock::now() < until {
            assert_eq!(
                scene.info_at(0).holding,
                1,
                "node 0 counts (asked again: {is_asked_again})"
            );
            std::thread::yield_now();
        }
    }
}

/// A node that lost the hold of a former writer gets back what it holds now, not what it once asked for.
#[test]
fn a_downgraded_writer_is_repaired_as_a_reader() {
    let scene = Scene::new();
    let entry = someone();
    assert!(matches!(scene.ask(writer(entry)), Acquired::Granted(_)));
    scene.downgrade(entry);
    scene.forget_at(1, entry);
    scene.renew(entry);
    assert_eq!(scene.permits_at(1), Some(1));
}

/// I1: a writer that has entered again, as a reader, is repaired with all its permits.
#[test]
fn a_writer_that_reads_as_well_is_repaired_as_a_writer() {
    let scene = Scene::new();
    let entry = Entry { owner: Owner::new(), number: 1 };
    assert!(matches!(scene.ask(writer(entry)), Acquired::Granted(_)));
    let again = Entry { number: 2, ..entry };
    assert!(matches!(scene.ask(reader(again)), Acquired::Granted(_)));
    [entry, again].into_iter().for_each(|it| scene.forget_at(1, it));
    assert_eq!(scene.permits_at(1), None);
    scene.renew(entry);
    assert_eq!(scene.permits_at(1), Some(ALL));
}

/// A writer that waits at one node still, and becomes a reader, is not served there as a writer.
#[test]
fn a_downgraded_writer_waits_nowhere_as_a_writer() {
    let scene = Scene::new();
    let (before, entry) = (someone(), someone());
    block_on(scene.stores[2].acquire(AcquireRequest { lease: Lease::MAX, ..reader(before) }))
        .unwrap();
    assert!(matches!(scene.ask(writer(entry)), Acquired::Granted(_)));
    assert_eq!(scene.info_at(2).waiting, 1);
    scene.downgrade(entry);
    assert_eq!(scene.info_at(2).waiting, 0);
    scene.renew(entry);
    block_on(scene.stores[2].release(ReleaseRequest::new(name(), before))).unwrap();
    assert_eq!(scene.permits_at(2), Some(1), "repaired beside the other reader");
}

/// I6: a release that follows a downgrade ends the entry at a node that has missed both.
#[test]
fn a_release_after_a_downgrade_ends_the_entry_everywhere() {
    let scene = Scene::new();
    let entry = someone();
    assert!(matches!(scene.ask(writer(entry)), Acquired::Granted(_)));
    scene.set_down(0, true);
    scene.downgrade(entry);
    block_on(scene.quorum.release(ReleaseRequest::new(name(), entry))).unwrap();
    assert_eq!(scene.permits_at(0), Some(ALL));
    scene.set_down(0, false);
    while scene.permits_at(0).is_some() {
        std::thread::yield_now();
    }
}

fn permit(entry: Entry) -> AcquireRequest {
    AcquireRequest { queue: None, ..waiting(entry, Kind::Semaphore, (2, 1)) }
}

/// I1: two permits of three nodes are not too many only if each is held at all of them, also when it is renewed by its
/// handle.
#[test]
fn the_handle_of_a_semaphore_is_renewed_by_as_many_nodes_as_it_needs() {
    let scene = Scene::new();
    let entry = someone();
    assert!(matches!(scene.ask(permit(entry)), Acquired::Granted(_)));
    scene.quorum.detach(&name(), entry).unwrap();
    scene.renew(entry);
    scene.forget_at(2, entry);
    let renewal = Renewal { name: name(), entry, lease: Lease::DEFAULT, commit: None };
    let renewed = block_on(scene.quorum.renew(vec![renewal.clone()])).unwrap();
    assert_eq!(renewed[0].as_ref().unwrap(), &Renewed::NotHeld);
    scene.set_down(1, true);
    scene.set_down(2, true);
    let renewed = block_on(scene.quorum.renew(vec![renewal])).unwrap();
    assert!(renewed[0].is_err(), "it cannot be said what it needs");
}

/// The handle of a mutex needs a majority, and no more.
#[test]
fn the_handle_of_a_mutex_is_renewed_by_a_majority() {
    let scene = Scene::new();
    let entry = someone();
    acquire(&scene, entry).unwrap();
    scene.quorum.detach(&name(), entry).unwrap();
    scene.forget_at(2, entry);
    scene.renew(entry);
    scene.set_down(2, true);
    scene.renew(entry);
}

#[test]
fn an_error_says_how_many_nodes_a_semaphore_needs() {
    let scene = Scene::new();
    let entry = someone();
    assert!(matches!(scene.ask(permit(entry)), Acquired::Granted(_)));
    scene.set_down(1, true);
    let refused = block_on(scene.quorum.acquire(permit(someone()))).unwrap_err().to_string();
    assert!(refused.contains("1 of 3 nodes did not answer, and 3 are needed"), "{refused}");
    let renewal = Renewal { name: name(), entry, lease: Lease::DEFAULT, commit: None };
    let renewed = block_on(scene.quorum.renew(vec![renewal])).unwrap();
    let failed = renewed[0].as_ref().unwrap_err().to_string();
    assert!(failed.contains("3 are needed"), "{failed}");
    let release = ReleaseRequest::new(name(), entry);
    let failed = block_on(scene.quorum.release(release)).unwrap_err().to_string();
    assert!(failed.contains("3 are needed"), "{failed}");
}
