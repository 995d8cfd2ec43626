//! R27: latches and barriers.

use std::time::Duration;

use tenure::{Barrier, Error, Kind, Latch, Owner};

use super::fixture::{Fixture, IN_VAIN, features, ms, pass, poll_once};
use super::locks::until_waiting;

const LONG: Duration = Duration::from_secs(20);

fn waiting(latch: Latch) -> tokio::task::JoinHandle<Result<(), Error>> {
    tokio::spawn(async move { latch.wait_within(LONG).await })
}

fn meeting(barrier: Barrier) -> tokio::task::JoinHandle<Result<(), Error>> {
    tokio::spawn(async move { barrier.wait_within(LONG).await })
}

pub(crate) async fn a_latch_opens_with_the_last_count(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    a.latch("x", 2).set_count().await.unwrap();
    let waiters: Vec<_> = (0..3).map(|_| waiting(b.latch("x", 2))).collect();
    until_waiting(&a, "x", 3).await;
    let latch = a.latch("x", 2);
    assert_eq!(latch.count().await.unwrap(), 2);
    latch.count_down().await.unwrap();
    assert_eq!(latch.count().await.unwrap(), 1);
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    b.latch("x", 2).count_down().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    latch.wait().await.unwrap();
    latch.count_down().await.unwrap();
    assert_eq!(latch.count().await.unwrap(), 0, "it stays open");
    let kind = features().has_limits.then_some(Kind::Latch);
    assert_eq!(latch.inspect().await.unwrap().kind, kind);
}

pub(crate) async fn a_latch_counts_an_owner_once(store: &impl Fixture) {
    let latch = store.tenure().latch("x", 2);
    latch.set_count().await.unwrap();
    let owner = Owner::new();
    latch.count_down_as(owner).await.unwrap();
    store.tenure().latch("x", 2).count_down_as(owner).await.unwrap();
    assert_eq!(latch.count().await.unwrap(), 1);
    let error = latch.wait_within(IN_VAIN).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert_eq!(latch.inspect().await.unwrap().waiting, 0);
    latch.count_down_as(Owner::new()).await.unwrap();
    latch.wait().await.unwrap();
}

pub(crate) async fn a_count_outlives_its_client(store: &impl Fixture) {
    let latch = store.tenure().latch("x", 1);
    store.tenure().latch("x", 1).note("done by 7").count_down().await.unwrap();
    store.until_clients(1).await;
    latch.wait_within(LONG).await.unwrap();
    let holders = latch.inspect().await.unwrap().holders;
    assert_eq!(holders[0].about.note.as_deref(), Some("done by 7"));
    assert!(holders[0].lease_left > Duration::from_secs(23 * 3600));
}

pub(crate) async fn a_latch_is_new_after_its_time(store: &impl Fixture) {
    let latch = store.tenure().latch("x", 1).keep_for(ms(200));
    latch.count_down().await.unwrap();
    latch.wait().await.unwrap();
    while latch.count().await.unwrap() == 0 {
        pass(ms(10)).await;
    }
    let error = latch.wait_within(IN_VAIN).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
}

pub(crate) async fn a_barrier_opens_for_all_at_once(store: &impl Fixture) {
    let (a, b, c) = (store.tenure(), store.tenure(), store.tenure());
    for round in 0..3 {
        let parties = [meeting(a.barrier("x", 3)), meeting(b.barrier("x", 3))];
        until_waiting(&c, "x", 2).await;
        assert!(parties.iter().all(|party| !party.is_finished()), "round {round}");
        c.barrier("x", 3).wait_within(LONG).await.unwrap();
        for party in parties {
            party.await.unwrap().unwrap();
        }
    }
    assert_eq!(c.barrier("x", 3).inspect().await.unwrap().waiting, 0);
    c.barrier("alone", 1).wait_within(LONG).await.unwrap();
}

pub(crate) async fn a_party_that_gave_up_is_not_counted(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let error = a.barrier("x", 2).wait_within(IN_VAIN).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    until_waiting(&a, "x", 0).await;
    let party = meeting(b.barrier("x", 2));
    until_waiting(&a, "x", 1).await;
    assert!(!party.is_finished(), "the party that gave up is not counted");
    a.barrier("x", 2).wait_within(LONG).await.unwrap();
    party.await.unwrap().unwrap();
}

/// Rule 13: a party that was dropped after a poll or two has left before the next party of its client arrives,
/// so that the next one is alone.
pub(crate) async fn a_party_that_was_dropped_is_not_counted_by_the_next(store: &impl Fixture) {
    let tenure = store.tenure();
    for round in 0..30 {
        let name = format!("x{round}");
        let barrier = tenure.barrier(&*name, 2);
        let mut party = Box::pin(barrier.wait());
        for _ in 0..=round % 3 {
            assert!(poll_once(party.as_mut()).await.is_pending());
        }
        drop(party);
        let next = meeting(barrier);
        while tenure.lock(&*name).inspect().await.unwrap().waiting != 1 {
            assert!(!next.is_finished(), "it passed alone");
            pass(ms(1)).await;
        }
        next.abort();
    }
}
