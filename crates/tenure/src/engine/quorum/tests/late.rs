//! Answers that come late, after something else has happened to the hold.

use super::super::left::Fate;
use super::kinds::QUEUE;
use super::*;

type Job = Box<dyn FnOnce() + Send>;

/// Operations that are performed later.
#[derive(Default)]
struct Late {
    is_late: AtomicBool,
    jobs: Mutex<Vec<Job>>,
}

impl Late {
    fn perform(&self) {
        self.is_late.store(false, Ordering::SeqCst);
        let jobs = std::mem::take(&mut *lock(&self.jobs));
        jobs.into_iter().for_each(|job| job());
    }

    fn run<T: Clone + Send + Unpin + 'static>(
        &self,
        operation: impl FnOnce() -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        if !self.is_late.load(Ordering::SeqCst) {
            return operation();
        }
        let (done, answer) = oneshot::channel();
        lock(&self.jobs).push(Box::new(move || {
            let Ok(result) = operation().into_now() else {
                panic!("a memory engine answers at once")
            };
            drop(done.send(result));
        }));
        Answer::later(async { answer.await.unwrap_or_else(|_| Err(StoreError::unknown("lost"))) })
    }
}

/// A store whose operations may be late.
struct Slow {
    store: Arc<MemoryEngine>,
    acquires: Arc<Late>,
    renewals: Arc<Late>,
}

impl Engine for Slow {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn acquire(&self, request: AcquireRequest) -> Answer<Acquired> {
        let store = self.store.clone();
        self.acquires.run(move || store.acquire(request))
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Answer<Vec<Result<Renewed, StoreError>>> {
        let store = self.store.clone();
        self.renewals.run(move || store.renew(renewals))
    }

    fn release(&self, request: ReleaseRequest) -> Answer<ReleaseOutcome> {
        self.store.release(request)
    }

    fn cancel(&self, request: CancelRequest) -> Answer<()> {
        self.store.cancel(request)
    }

    fn inspect(&self, name: LockName) -> Answer<LockInfo> {
        self.store.inspect(name)
    }

    fn list(&self, request: ListRequest) -> Answer<Vec<LockInfo>> {
        self.store.list(request)
    }

    fn force_release(&self, request: ForceRequest) -> Answer<ForceOutcome> {
        self.store.force_release(request)
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        self.store.listen(listener);
    }
}

/// A quorum of three of them.
struct Stage {
    scene: Scene,
    acquires: Arc<Late>,
    renewals: Arc<Late>,
    quorum: QuorumEngine,
}

impl Stage {
    fn new() -> Self {
        let (scene, acquires, renewals) = (Scene::new(), Arc::default(), Arc::default());
        let slow = |store: &MemoryEngine| {
            let store = Arc::new(store.another());
            let (acquires, renewals) = (Arc::clone(&acquires), Arc::clone(&renewals));
            Box::new(Slow { store, acquires, renewals }) as Box<dyn Engine>
        };
        let quorum = QuorumEngine::over(scene.stores.iter().map(slow).collect(), LONGEST).unwrap();
        Self { scene, acquires, renewals, quorum }
    }

    fn acquire(&self, request: AcquireRequest) -> Result<Acquired, StoreError> {
        block_on(self.quorum.acquire(request))
    }

    fn renew(&self, entry: Entry) -> Answer<Vec<Result<Renewed, StoreError>>> {
        let renewal = Renewal { name: name(), entry, lease: Lease::DEFAULT, commit: None };
        self.quorum.renew(vec![renewal])
    }
}

fn set_late(late: &Late) {
    late.is_late.store(true, Ordering::SeqCst);
}

/// A waiter asks once more although it has the lock; a renewal is under way when that is answered. Every node has extended it.
#[test]
fn a_renewal_beside_a_question_is_extended() {
    let (stage, entry) = (Stage::new(), someone());
    let request = AcquireRequest { queue: Some(QUEUE), ..request(entry, None) };
    assert!(matches!(stage.acquire(request.clone()), Ok(Acquired::Granted(_))));
    set_late(&stage.acquires);
    let question = stage.quorum.acquire(request);
    set_late(&stage.renewals);
    let renewing = stage.renew(entry);
    stage.acquires.perform();
    assert!(matches!(block_on(question), Ok(Acquired::Granted(_))));
    stage.renewals.perform();
    assert_eq!(block_on(renewing).unwrap().remove(0).unwrap(), Renewed::Extended);
}

/// A renewal, which has a connection of its own, arrives after the entry got another number, and the nodes do not have the former one any
/// more. That is no loss.
#[test]
fn a_renewal_that_is_overtaken_by_another_number_is_no_loss() {
    let (stage, entry) = (Stage::new(), someone());
    assert!(matches!(stage.acquire(request(entry, None)), Ok(Acquired::Granted(_))));
    // A node is to end the entry, and gets the hold again by another number.
    let until = clock::now() + LONGEST;
    stage.quorum.quorum.nodes[0].leave_behind(name(), entry, until, Fate::Unknown);
    while stage.scene.fence_at(0, entry.owner).is_some() {
        std::thread::yield_now();
    }
    for _ in 0..2 {
        block_on(stage.renew(entry)).unwrap().remove(0).unwrap();
    }
    set_late(&stage.renewals);
    let renewing = stage.renew(entry);
    assert_ne!(block_on(stage.quorum.entry_to_detach(&name(), entry)).unwrap(), entry);
    stage.renewals.perform();
    let renewed = block_on(renewing).unwrap().remove(0);
    assert!(!matches!(renewed, Ok(Renewed::NotHeld)), "{renewed:?}");
    assert_eq!(block_on(stage.renew(entry)).unwrap().remove(0).unwrap(), Renewed::Extended);
}

/// I8: a re-entry failed after the first entry was released. Its end was not sent, because an earlier hold of the same owner had been
/// detached.
#[test]
fn a_failed_reentry_leaves_nothing_after_a_detach() {
    let (stage, owner) = (Stage::new(), Owner::new());
    let [earlier, first, again] = [3, 4, 5].map(|number| Entry { owner, number });
    let release =
        |entry| block_on(stage.quorum.release(ReleaseRequest::new(name(), entry))).unwrap();
    assert!(matches!(stage.acquire(request(earlier, None)), Ok(Acquired::Granted(_))));
    stage.quorum.detach(&name(), earlier).unwrap();
    release(earlier);
    assert!(matches!(stage.acquire(request(first, None)), Ok(Acquired::Granted(_))));
    set_late(&stage.renewals);
    let entering = stage.quorum.acquire(request(again, None));
    assert_eq!(release(first), ReleaseOutcome::Released { remaining: 1 });
    // The answers are lost.
    lock(&stage.renewals.jobs).clear();
    block_on(entering).unwrap_err();
    // As the driver does.
    block_on(stage.quorum.cancel(CancelRequest { name: name(), entry: again })).unwrap();
    let until = clock::now() + Duration::from_secs(10);
    while (0..3).any(|node| stage.scene.fence_at(node, owner).is_some()) {
        assert!(clock::now() < until, "it is held until its lease ends");
        std::thread::yield_now();
    }
}

/// Two ends of one entry are on the way to a node. The first one is confirmed, and the second one is kept by a connection that was given
/// up: what the node grants to this entry must not be relied on (I1).
#[test]
fn the_confirmation_of_one_end_says_nothing_of_another() {
    let (scene, before, entry) = (Scene::new(), someone(), someone());
    let on_the_way = || lock(&scene.cancels).as_ref().map_or(0, Vec::len);
    block_on(scene.stores[0].acquire(request(before, None))).unwrap();
    // It waits at node 0, and fails: node 0 is to end it.
    (1..3).for_each(|node| scene.set_down(node, true));
    *lock(&scene.cancels) = Some(Vec::new());
    let asks = AcquireRequest { queue: Some(QUEUE), ..request(entry, None) };
    block_on(scene.quorum.acquire(asks.clone())).unwrap_err();
    assert_eq!(on_the_way(), 1);
    // Before that arrives, node 0 hands over to it. It is not wanted any more, and ended once more.
    block_on(scene.stores[0].release(ReleaseRequest::new(name(), before))).unwrap();
    while on_the_way() < 2 {
        std::thread::yield_now();
    }
    let mut both = lock(&scene.cancels).take().unwrap();
    let (late, lost) = both.pop().unwrap();
    let (first, done) = both.pop().unwrap();
    block_on(scene.stores[0].cancel(first)).unwrap();
    done.send(Ok(())).unwrap();
    drop(lost);
    // The driver asks again for the same entry.
    scene.set_down(1, false);
    assert!(matches!(block_on(scene.quorum.acquire(asks)), Ok(Acquired::Granted(_))));
    block_on(scene.stores[0].cancel(late)).unwrap();
    assert_eq!(acquire(&scene.another(), someone()).unwrap(), Acquired::Busy, "two holders");
}

/// I9: a node that answers so late that little is left of what another one granted. The hold is confirmed before it is reported, and counts
/// from then.
#[test]
fn a_hold_with_little_left_is_confirmed_before_it_is_reported() {
    let (stage, entry) = (Stage::new(), someone());
    let lease = Lease::new(Duration::from_secs(2)).unwrap();
    stage.acquires.is_late.store(true, Ordering::SeqCst);
    std::thread::scope(|threads| {
        let asking = threads.spawn(|| {
            let asked = clock::now();
            (asked, stage.acquire(AcquireRequest { lease, ..request(entry, None) }))
        });
        while lock(&stage.acquires.jobs).len() < 3 {
            std::thread::yield_now();
        }
        let mut jobs = std::mem::take(&mut *lock(&stage.acquires.jobs));
        let late = jobs.remove(2);
        jobs.remove(1)();
        let until = clock::now() + lease.duration() / 4 * 3;
        while clock::now() < until {
            std::thread::yield_now();
        }
        late();
        let (asked, granted) = asking.join().unwrap();
        let Ok(Acquired::Granted(grant)) = granted else { panic!("{granted:?}") };
        assert!(grant.lease >= lease.duration() / 4 * 7, "{grant:?}");
        assert!(asked + grant.lease <= grant.at + lease.duration(), "I2: {grant:?}");
    });
}
