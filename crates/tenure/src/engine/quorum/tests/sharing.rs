//! Several entries and handles of one owner: what is done to one of them concerns no other (I1, I3).

use super::detaching::renumber;
use super::*;

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
