//! The engine on memory engines, of which some refuse by plan. [`kinds`]: locks that are no mutexes; [`detaching`]; [`sharing`]: several
//! entries and handles of one owner; [`late`]: answers that come late; [`splits`]: votes that are split.

mod detaching;
mod kinds;
mod late;
mod sharing;
mod splits;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::blocking::block_on;
use crate::core::fence::Fence;
use crate::engine::{MemoryEngine, Proposal};
use crate::info::About;
use crate::{Lease, LockName, Owner, Shape, clock};

const LONGEST: Duration = Duration::from_secs(60);

/// Cancels that are on the way, if any is to be: what each asks for, and where its answer goes.
type OnTheWay = Option<Vec<(CancelRequest, oneshot::Sender<Result<(), StoreError>>)>>;

/// A store that may be down, or whose cancels may be kept on the way.
struct Switched {
    store: MemoryEngine,
    is_down: Arc<AtomicBool>,
    cancels: Arc<Mutex<OnTheWay>>,
    round_trip: Duration,
}

impl Switched {
    fn when_up<T>(&self, operation: impl FnOnce(&MemoryEngine) -> Answer<T>) -> Answer<T> {
        match self.is_down.load(Ordering::SeqCst) {
            true => Answer::now(Err(StoreError::refused("it is down"))),
            false => operation(&self.store),
        }
    }
}

impl Engine for Switched {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn acquire(&self, request: AcquireRequest) -> Answer<Acquired> {
        self.when_up(|store| store.acquire(request))
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Answer<Vec<Result<Renewed, StoreError>>> {
        self.when_up(|store| store.renew(renewals))
    }

    fn release(&self, request: ReleaseRequest) -> Answer<ReleaseOutcome> {
        self.when_up(|store| store.release(request))
    }

    fn cancel(&self, request: CancelRequest) -> Answer<()> {
        if let Some(on_the_way) = &mut *lock(&self.cancels) {
            let (done, answer) = oneshot::channel();
            on_the_way.push((request, done));
            let lost = || Err(StoreError::unknown("lost the connection"));
            return Answer::later(async move { answer.await.unwrap_or_else(|_| lost()) });
        }
        self.when_up(|store| store.cancel(request))
    }

    fn inspect(&self, name: LockName) -> Answer<LockInfo> {
        self.when_up(|store| store.inspect(name))
    }

    fn list(&self, request: ListRequest) -> Answer<Vec<LockInfo>> {
        self.when_up(|store| store.list(request))
    }

    fn force_release(&self, request: ForceRequest) -> Answer<ForceOutcome> {
        self.when_up(|store| store.force_release(request))
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        self.store.listen(listener);
    }

    fn round_trip(&self) -> Duration {
        self.round_trip
    }
}

/// Three stores, and a quorum of them.
struct Scene {
    stores: Vec<MemoryEngine>,
    down: Vec<Arc<AtomicBool>>,
    /// Of node 0.
    cancels: Arc<Mutex<OnTheWay>>,
    quorum: QuorumEngine,
}

impl Scene {
    fn new() -> Self {
        Self::over((0..3).map(|_| MemoryEngine::new()).collect())
    }

    /// Another client of the same stores, for which others may be down.
    fn another(&self) -> Self {
        Self::over(self.stores.iter().map(MemoryEngine::another).collect())
    }

    fn over(stores: Vec<MemoryEngine>) -> Self {
        let down: Vec<_> = stores.iter().map(|_| Arc::new(AtomicBool::new(false))).collect();
        let cancels = Arc::<Mutex<OnTheWay>>::default();
        let node = |(is_down, millis): (&Arc<AtomicBool>, u64)| {
            let store = stores[millis as usize - 1].another();
            let (is_down, round_trip) = (is_down.clone(), Duration::from_millis(millis));
            let cancels = if millis == 1 { cancels.clone() } else { Arc::default() };
            Box::new(Switched { store, is_down, cancels, round_trip }) as Box<dyn Engine>
        };
        let nodes = down.iter().zip(1..).map(node).collect();
        let quorum = QuorumEngine::over(nodes, LONGEST).unwrap();
        Self { stores, down, cancels, quorum }
    }

    fn set_down(&self, node: usize, is_down: bool) {
        self.down[node].store(is_down, Ordering::SeqCst);
    }

    /// Whether a store has this owner as the holder, and with which fence.
    fn fence_at(&self, node: usize, owner: Owner) -> Option<Fence> {
        let info = block_on(self.stores[node].inspect(name())).unwrap();
        info.holders.iter().find(|holder| holder.owner == owner).map(|holder| holder.fence)
    }
}

fn name() -> LockName {
    LockName::new("x").unwrap()
}

fn request(entry: Entry, fence: Option<u64>) -> AcquireRequest {
    AcquireRequest {
        name: name(),
        entry,
        shape: Shape::mutex(),
        lease: Lease::DEFAULT,
        about: Arc::new(About::this_process()),
        queue: None,
        proposal: fence.map(|it| Proposal {
            fence: Fence::from_value(it),
            is_repair: false,
            is_repeated: false,
        }),
    }
}

fn someone() -> Entry {
    Entry { owner: Owner::new(), number: 0 }
}

fn acquire(scene: &Scene, entry: Entry) -> Result<Acquired, StoreError> {
    block_on(scene.quorum.acquire(request(entry, None)))
}

/// I4: a node that knows a larger fence refuses; it is asked again, and the other node gets its fence.
#[test]
fn different_fences_become_one_before_the_grant_is_reported() {
    let scene = Scene::new();
    let (before, entry) = (someone(), someone());
    let ahead = clock::both().wall.as_micros() + 5_000_000;
    block_on(scene.stores[0].acquire(request(before, Some(ahead)))).unwrap();
    block_on(scene.stores[0].release(ReleaseRequest::new(name(), before))).unwrap();
    scene.set_down(2, true);
    let Ok(Acquired::Granted(grant)) = acquire(&scene, entry) else { panic!("not granted") };
    assert!(grant.fence.value() > ahead);
    for node in 0..2 {
        assert_eq!(scene.fence_at(node, entry.owner), Some(grant.fence), "stored at both");
    }
}

/// I1: a lease that a node extends while its clock is behind ends early when that is set right, also if a fence was stored with
/// it.
#[test]
fn a_node_whose_clock_is_behind_does_not_confirm_a_fence() {
    let scene = Scene::new();
    let (settled, before, entry) = (someone(), someone(), someone());
    acquire(&scene, settled).unwrap();
    block_on(scene.quorum.release(ReleaseRequest::new(name(), settled))).unwrap();
    let ahead = clock::both().wall.as_micros() + 5_000_000;
    block_on(scene.stores[0].acquire(request(before, Some(ahead)))).unwrap();
    block_on(scene.stores[0].release(ReleaseRequest::new(name(), before))).unwrap();
    scene.set_down(2, true);
    scene.quorum.quorum.nodes[0].set_behind(true);
    let refused = acquire(&scene, entry).unwrap_err();
    assert!(refused.to_string().contains("fence"), "{refused}");
    scene.quorum.quorum.nodes[0].set_behind(false);
    assert!(matches!(acquire(&scene, entry), Ok(Acquired::Granted(_))));
}

/// A node that was down when the lock was granted gets it with the next renewal.
#[test]
fn a_renewal_repairs_nodes_that_do_not_have_the_hold() {
    let scene = Scene::new();
    let entry = someone();
    scene.set_down(1, true);
    let Ok(Acquired::Granted(grant)) = acquire(&scene, entry) else { panic!("not granted") };
    scene.set_down(1, false);
    assert_eq!(scene.fence_at(1, entry.owner), None);
    let renewal = Renewal { name: name(), entry, lease: Lease::DEFAULT, commit: None };
    let renewed = block_on(scene.quorum.renew(vec![renewal])).unwrap();
    assert_eq!(renewed[0].as_ref().unwrap(), &Renewed::Extended);
    assert_eq!(scene.fence_at(1, entry.owner), Some(grant.fence));
}

/// I6: an attempt that fails leaves nothing where it was granted.
#[test]
fn a_failed_attempt_is_ended_at_every_node() {
    let scene = Scene::new();
    let entry = someone();
    scene.set_down(0, true);
    scene.set_down(1, true);
    let refused = acquire(&scene, entry).unwrap_err();
    assert!(!refused.is_unknown() && refused.to_string().contains("2 of 3 nodes"), "{refused}");
    assert_eq!(scene.fence_at(2, entry.owner), None);
    assert!(lock(&scene.quorum.quorum.attempts).is_empty());
}

/// I1, I6: a node that misses the release, or performs it late, does not end a later hold of the same entry: that one has
/// another number there.
#[test]
fn a_release_that_arrives_late_does_not_end_a_later_hold_of_the_same_entry() {
    let scene = Scene::new();
    let entry = someone();
    acquire(&scene, entry).unwrap();
    scene.set_down(0, true);
    block_on(scene.quorum.release(ReleaseRequest::new(name(), entry))).unwrap();
    assert!(scene.fence_at(0, entry.owner).is_some());
    scene.set_down(0, false);
    scene.set_down(1, true);
    assert!(matches!(acquire(&scene, entry), Ok(Acquired::Granted(_))));
    // The engine's thread asks the node again for the end of the first one.
    let entries = || block_on(scene.stores[0].inspect(name())).unwrap().holders[0].entries;
    while entries() > 1 {
        std::thread::yield_now();
    }
    // Another copy of it, which a connection that was given up had kept.
    block_on(scene.stores[0].cancel(CancelRequest { name: name(), entry })).unwrap();
    assert!(scene.fence_at(0, entry.owner).is_some());
    block_on(scene.quorum.release(ReleaseRequest::new(name(), entry))).unwrap();
    assert_eq!(scene.fence_at(0, entry.owner), None);
}

/// I6: a waiter asks once more before it knows that it was granted the lock. A node that knows its entry by another number
/// must not get a second one, which no release would end.
#[test]
fn an_entry_that_is_asked_for_again_keeps_its_number() {
    let scene = Scene::new();
    let entry = someone();
    acquire(&scene, entry).unwrap();
    scene.set_down(0, true);
    block_on(scene.quorum.release(ReleaseRequest::new(name(), entry))).unwrap();
    scene.set_down(0, false);
    assert!(matches!(acquire(&scene, entry), Ok(Acquired::Granted(_))));
    // The engine's thread asks the node again for the end of the first one.
    let entries = || block_on(scene.stores[0].inspect(name())).unwrap().holders[0].entries;
    while entries() > 1 {
        std::thread::yield_now();
    }
    assert!(matches!(acquire(&scene, entry), Ok(Acquired::Granted(_))));
    assert_eq!(entries(), 1);
    block_on(scene.quorum.release(ReleaseRequest::new(name(), entry))).unwrap();
    assert_eq!(scene.fence_at(0, entry.owner), None);
    assert!(scene.quorum.quorum.holds.is_empty());
}

/// I1: a node that missed a re-entry must not free the lock with the release of the first entry.
#[test]
fn a_reentry_is_counted_by_its_client() {
    let scene = Scene::new();
    let first = someone();
    let again = Entry { number: 7, ..first };
    let Ok(Acquired::Granted(grant)) = acquire(&scene, first) else { panic!("not granted") };
    scene.set_down(0, true);
    let Ok(Acquired::Granted(second)) = acquire(&scene, again) else { panic!("not entered") };
    assert_eq!(second.fence, grant.fence);
    scene.set_down(0, false);
    let released = block_on(scene.quorum.release(ReleaseRequest::new(name(), first))).unwrap();
    assert_eq!(released, ReleaseOutcome::Released { remaining: 1 });
    for node in 0..3 {
        assert_eq!(scene.fence_at(node, first.owner), Some(grant.fence), "node {node}");
    }
    let released = block_on(scene.quorum.release(ReleaseRequest::new(name(), again))).unwrap();
    assert_eq!(released, ReleaseOutcome::Released { remaining: 0 });
    assert!((0..3).all(|node| scene.fence_at(node, first.owner).is_none()));
    assert!(scene.quorum.quorum.holds.is_empty());
}

/// I1: two clients of one owner. A node that has the entry of the other one alone does not count until it has both.
#[test]
fn a_node_counts_only_with_every_entry() {
    let scene = Scene::new();
    let other = scene.another();
    let first = someone();
    let second = Entry { number: 7, ..first };
    acquire(&scene, first).unwrap();
    other.set_down(0, true);
    assert!(matches!(acquire(&other, second), Ok(Acquired::Granted(_))));
    other.set_down(0, false);
    other.set_down(2, true);
    let renewal = Renewal { name: name(), entry: second, lease: Lease::DEFAULT, commit: None };
    let renewed = block_on(other.quorum.renew(vec![renewal.clone()])).unwrap();
    assert!(
        !matches!(renewed[0], Ok(Renewed::Extended)),
        "one of three is known to have it: {renewed:?}"
    );
    other.set_down(2, false);
    block_on(other.quorum.renew(vec![renewal.clone()])).unwrap()[0].as_ref().unwrap();
    other.set_down(2, true);
    let renewed = block_on(other.quorum.renew(vec![renewal])).unwrap();
    assert_eq!(renewed[0].as_ref().unwrap(), &Renewed::Extended, "it was repaired");
    block_on(scene.quorum.release(ReleaseRequest::new(name(), first))).unwrap();
    assert!(scene.fence_at(0, first.owner).is_some(), "the other client has it");
}

/// What is kept for a lock goes with it.
#[test]
fn nothing_is_kept_of_locks_that_ended() {
    let scene = Scene::new();
    for _ in 0..100 {
        let (held, given_up) = (someone(), someone());
        acquire(&scene, held).unwrap();
        assert_eq!(acquire(&scene, given_up).unwrap(), Acquired::Busy);
        block_on(scene.quorum.release(ReleaseRequest::new(name(), held))).unwrap();
    }
    let quorum = &scene.quorum.quorum;
    assert!(lock(&quorum.attempts).is_empty() && quorum.holds.is_empty());
}

/// I1: a client that was stopped for long has not looked at its nodes. Their addresses may lead to other servers by now, so
/// what they grant does not count until it has looked.
#[test]
fn a_node_that_was_not_looked_at_in_time_does_not_vote() {
    let scene = Scene::new();
    let nodes = &scene.quorum.quorum.nodes;
    nodes.iter().for_each(|it| it.look_again_within(clock::now(), Duration::from_secs(24)));
    let entry = someone();
    assert!(matches!(acquire(&scene, entry), Ok(Acquired::Granted(_))));
    block_on(scene.quorum.release(ReleaseRequest::new(name(), entry))).unwrap();
    nodes[..2].iter().for_each(|it| it.look_again_within(clock::now(), Duration::ZERO));
    assert!(acquire(&scene, someone()).is_err());
}

/// The nodes are 1, 2 and 3 ms away.
#[test]
fn the_round_trip_is_that_of_a_majority_of_the_nodes_that_vote() {
    let scene = Scene::new();
    let round_trip = || scene.quorum.round_trip().as_millis();
    assert_eq!(round_trip(), 2);
    scene.quorum.quorum.nodes[0].expel(Absent(StoreError::refused("it has lost its data")));
    assert_eq!(round_trip(), 3);
    scene.quorum.quorum.nodes[2].expel(Absent(StoreError::refused("it has lost its data")));
    assert_eq!(round_trip(), 2, "no majority votes");
}

/// I9: a node that has lost a hold and was repaired counts again, so that another one, which loses it much later, does not
/// end it.
#[test]
fn a_node_that_was_repaired_has_not_lost_the_hold() {
    let scene = Scene::new();
    let (entry, holds) = (someone(), &scene.quorum.quorum.holds);
    acquire(&scene, entry).unwrap();
    assert!(!holds.lose(&name(), entry.owner, 1, 3));
    block_on(scene.stores[1].release(ReleaseRequest::new(name(), entry))).unwrap();
    let renewal = Renewal { name: name(), entry, lease: Lease::DEFAULT, commit: None };
    block_on(scene.quorum.renew(vec![renewal])).unwrap();
    assert!(!holds.lose(&name(), entry.owner, 2, 3), "two of three have it");
    assert!(holds.lose(&name(), entry.owner, 0, 3), "one of three has it");
}
