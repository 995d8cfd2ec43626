//! Several entries and handles of one owner: what is done to one of them concerns no other (I1, I3).

use super::detaching::renumber;
use super::*;
use crate::Kind;

const SOON: Duration = Duration::from_millis(2_500);

/// Two entries of one owner.
fn pair() -> [Entry; 2] {
    let owner = Owner::new();
    [5, 7].map(|number| Entry { owner, number })
}

fn renew(scene: &Scene, entry: Entry) -> Renewed {
    let renewal = Renewal { name: name(), entry, lease: Lease::DEFAULT, commit: None };
    block_on(scene.quorum.renew(vec![renewal])).unwrap().remove(0).unwrap()
}

fn release(scene: &Scene, entry: Entry) -> Result<ReleaseOutcome, StoreError> {
    block_on(scene.quorum.release(ReleaseRequest::new(name(), entry)))
}

fn hold(scene: &Scene, entry: Entry) {
    assert!(matches!(acquire(scene, entry), Ok(Acquired::Granted(_))));
}

/// Long enough for reminders to be sent.
fn pass(time: Duration) {
    let until = clock::now() + time;
    while clock::now() < until {
        std::thread::yield_now();
    }
}

/// A client that had a hold of an owner adopted another one of the same owner, and detached that: the first one ended at two nodes, and
/// another owner was granted the lock.
#[test]
fn a_detach_of_an_adopted_hold_concerns_no_other() {
    let scene = Scene::new();
    let (first, third, [handle, mine]) = (scene.another(), scene.another(), pair());
    hold(&first, handle);
    first.quorum.detach(&name(), handle).unwrap();
    renumber(&scene, mine);
    assert_eq!(renew(&scene, mine), Renewed::Extended);
    assert_eq!(renew(&scene, handle), Renewed::Extended, "adopted");
    assert_eq!(block_on(scene.quorum.entry_to_detach(&name(), handle)).unwrap(), handle);
    scene.quorum.detach(&name(), handle).unwrap();
    release(&third, handle).unwrap();
    assert_eq!(acquire(&third, someone()).unwrap(), Acquired::Busy, "I1");
    assert_eq!(renew(&scene, mine), Renewed::Extended);
    release(&scene, mine).unwrap();
    assert!(scene.quorum.quorum.holds.is_empty());
}

/// A client released one handle while a node was down, and held another one of the same owner for lost.
#[test]
fn a_release_of_one_handle_does_not_lose_another_of_its_owner() {
    let (scene, [first, second]) = (Scene::new(), pair());
    for entry in [first, second] {
        let client = scene.another();
        hold(&client, entry);
        client.quorum.detach(&name(), entry).unwrap();
        assert_eq!(renew(&scene, entry), Renewed::Extended, "adopted");
    }
    scene.set_down(2, true);
    assert_eq!(release(&scene, first).unwrap(), ReleaseOutcome::Released { remaining: 1 });
    scene.set_down(2, false);
    assert_eq!(renew(&scene, second), Renewed::Extended);
    assert_eq!(renew(&scene, first), Renewed::NotHeld, "a node may have it, and is to end it");
}

/// What a client was releasing could be adopted again once the client had detached another entry of the same owner; the reminders of the
/// release then ended it.
#[test]
fn what_is_being_released_stays_so_when_another_entry_is_detached() {
    let (scene, [first, second]) = (Scene::new(), pair());
    let one = scene.another();
    hold(&one, first);
    one.quorum.detach(&name(), first).unwrap();
    scene.set_down(1, true);
    scene.set_down(2, true);
    release(&scene, first).unwrap_err();
    scene.set_down(1, false);
    scene.set_down(2, false);
    hold(&scene, second);
    scene.quorum.detach(&name(), second).unwrap();
    assert_eq!(renew(&scene, first), Renewed::NotHeld, "it is being released");
    // Also in a call with others.
    let renewal = |entry| Renewal { name: name(), entry, lease: Lease::DEFAULT, commit: None };
    let renewals = vec![renewal(second), renewal(first), renewal(second)];
    let renewed = block_on(scene.quorum.renew(renewals)).unwrap();
    let renewed: Vec<_> = renewed.into_iter().map(Result::unwrap).collect();
    assert_eq!(renewed, [Renewed::Extended, Renewed::NotHeld, Renewed::Extended]);
    pass(SOON);
    assert_eq!(renew(&scene, second), Renewed::Extended);
}

/// A waiter that asked once more was granted, and its first entry was released at that moment: the hold of the re-entry could never be
/// renewed again. A race, so it is tried many times.
#[test]
fn a_reentry_survives_the_release_of_the_first_entry_beside_its_question() {
    for _ in 0..3_000 {
        let (scene, [entry, again]) = (Scene::new(), pair());
        let waits = AcquireRequest { queue: Some(kinds::QUEUE), ..request(entry, None) };
        let granted = block_on(scene.quorum.acquire(waits.clone()));
        assert!(matches!(granted, Ok(Acquired::Granted(_))));
        hold(&scene, again);
        std::thread::scope(|threads| {
            threads.spawn(|| drop(block_on(scene.quorum.acquire(waits))));
            for _ in 0..fastrand::u32(..2_000) {
                std::hint::spin_loop();
            }
            let released = release(&scene, entry).unwrap();
            assert_eq!(released, ReleaseOutcome::Released { remaining: 1 });
        });
        assert_eq!(renew(&scene, again), Renewed::Extended);
        release(&scene, again).unwrap();
        assert!(scene.quorum.quorum.holds.is_empty());
    }
}

const ALL: u32 = Shape::MAX_LIMIT;

/// I9: the nodes have confirmed the hold for a further entry, and its caller does not run for a while. Meanwhile the lock is taken away
/// by force, and granted to another client.
#[test]
fn a_reentry_is_not_reported_after_the_loss_of_its_hold() {
    let scene = Scene::new();
    let [first, again] = pair();
    hold(&scene, first);
    let entering = scene.quorum.acquire(request(again, None));
    let by = Arc::new(About::this_process());
    let force = ForceRequest { name: name(), expected: None, reason: "a test".into(), by };
    let other = scene.another();
    block_on(other.quorum.force_release(force)).unwrap();
    hold(&other, someone());
    assert_eq!(block_on(entering).unwrap(), Acquired::Busy);
}

fn shared(entry: Entry, permits: u32) -> AcquireRequest {
    let shape = Shape::new(Kind::ReadWrite, ALL, permits).unwrap();
    AcquireRequest { shape, queue: Some(kinds::QUEUE), ..request(entry, None) }
}

fn ask(scene: &Scene, request: AcquireRequest) -> Acquired {
    block_on(scene.quorum.acquire(request)).unwrap()
}

fn is_granted(answer: &Acquired) -> bool {
    matches!(answer, Acquired::Granted(_))
}

fn downgrade(quorum: &QuorumEngine, entry: Entry) -> Result<ReleaseOutcome, StoreError> {
    block_on(quorum.release(ReleaseRequest { keep: 1, ..ReleaseRequest::new(name(), entry) }))
}

/// Two nodes had missed a downgrade, and its owner wrote twice. The second of these was counted, and stood on the entry of the reader
/// once the first had ended: a writer beside other readers.
#[test]
fn a_writer_does_not_stand_on_the_entry_of_a_reader() {
    let (scene, [reader, one]) = (Scene::new(), pair());
    let (other, two) = (scene.another(), Entry { number: 9, ..one });
    assert!(is_granted(&ask(&scene, shared(reader, ALL))));
    scene.set_down(0, true);
    scene.set_down(1, true);
    downgrade(&scene.quorum, reader).unwrap_err();
    scene.set_down(0, false);
    scene.set_down(1, false);
    assert!(is_granted(&ask(&scene, shared(one, ALL))), "nodes 0 and 1 have a writer");
    assert!(is_granted(&ask(&scene, shared(two, ALL))));
    release(&scene, one).unwrap();
    pass(SOON);
    assert_eq!(renew(&scene, two), Renewed::Extended, "a writer");
    assert!(!is_granted(&ask(&other, shared(someone(), 1))), "I1: and a reader");
}

type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// A store that calls something before it performs a release.
struct Hooked {
    store: MemoryEngine,
    hook: Hook,
}

impl Engine for Hooked {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn acquire(&self, request: AcquireRequest) -> Answer<Acquired> {
        self.store.acquire(request)
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Answer<Vec<Result<Renewed, StoreError>>> {
        self.store.renew(renewals)
    }

    fn release(&self, request: ReleaseRequest) -> Answer<ReleaseOutcome> {
        let hook = lock(&self.hook).take();
        hook.into_iter().for_each(|hook| hook());
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

/// A question about a writer is performed between a downgrade and its requests to the nodes. The hold became that of a writer again, by
/// which its owner could write beside other readers.
#[test]
fn a_question_beside_a_downgrade_does_not_make_a_writer() {
    let (scene, hook, [writer, again]) = (Scene::new(), Hook::default(), pair());
    let node = |store: &MemoryEngine| {
        Box::new(Hooked { store: store.another(), hook: Arc::clone(&hook) }) as Box<dyn Engine>
    };
    let quorum = QuorumEngine::over(scene.stores.iter().map(node).collect(), LONGEST).unwrap();
    let quorum = Arc::new(quorum);
    assert!(is_granted(&block_on(quorum.acquire(shared(writer, ALL))).unwrap()));
    let asking = quorum.clone();
    let question: Box<dyn FnOnce() + Send> =
        Box::new(move || drop(block_on(asking.acquire(shared(writer, ALL)))));
    *lock(&hook) = Some(question);
    downgrade(&quorum, writer).unwrap();
    let second = block_on(quorum.acquire(shared(again, ALL))).unwrap();
    let third = ask(&scene, shared(someone(), 1));
    assert!(!is_granted(&second) || !is_granted(&third), "I1: a writer and a reader");
}

/// I8: a party that asked once more, or gave up, while it waited to be told that it had passed, left a hold behind for ever.
#[test]
fn a_party_that_asks_while_it_passes_leaves_nothing() {
    for gives_up in [false, true] {
        let (first, entry, second) = (Scene::new(), someone(), someone());
        let other = first.another();
        let party = |entry| {
            let shape = Shape::new(Kind::Barrier, 2, 1).unwrap();
            AcquireRequest { shape, queue: Some(kinds::QUEUE), ..request(entry, None) }
        };
        other.set_down(2, true);
        assert!(matches!(ask(&first, party(entry)), Acquired::Queued(_)));
        let passing = other.quorum.acquire(party(second));
        let question = first.quorum.acquire(party(entry));
        if gives_up {
            block_on(first.quorum.cancel(CancelRequest { name: name(), entry })).unwrap();
        } else {
            // Node 2 opens.
            assert!(is_granted(&block_on(first.stores[2].acquire(party(second))).unwrap()));
            assert!(is_granted(&block_on(question).unwrap()));
            release(&first, entry).unwrap();
        }
        assert!(is_granted(&block_on(passing).unwrap()));
        release(&other, second).unwrap();
        pass(SOON);
        for scene in [&first, &other] {
            let quorum = &scene.quorum.quorum;
            assert!(quorum.holds.is_empty() && lock(&quorum.attempts).is_empty(), "{gives_up}");
        }
    }
}
