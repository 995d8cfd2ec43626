//! R27: semaphores.

use tenure::engine::AcquireRequest;
use tenure::{Error, Guard, Kind, Semaphore};

use super::fixture::{
    Fixture, KEPT, granted, is_later, lease, ms, pass, request, semaphore, someone,
};
use super::locks::until_waiting;

fn waiter(semaphore: Semaphore, permits: u32) -> tokio::task::JoinHandle<Guard> {
    tokio::spawn(async move { semaphore.acquire_many(permits).await.unwrap() })
}

pub(crate) async fn permits_are_counted(store: &impl Fixture) {
    let (a, b) = (store.tenure().semaphore("x", 5), store.tenure().semaphore("x", 5));
    let two = a.acquire_many(2).await.unwrap();
    let three = b.acquire_many(3).await.unwrap();
    assert_eq!(a.available().await.unwrap(), 0);
    assert!(a.try_acquire().await.unwrap().is_none());
    drop(two);
    until_available(&a, 2).await;
    let one = a.acquire().await.unwrap();
    assert_eq!(b.available().await.unwrap(), 1);
    assert!(b.permits(2).try_acquire().await.unwrap().is_none());
    three.release().await.unwrap();
    let four = b.acquire_many(4).await.unwrap();
    assert!(is_later(Kind::Semaphore, four.fence(), one.fence()) && !one.is_lost());
    let error = a.acquire_many(6).await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    assert!(store.tenure().semaphore("x", 0).acquire().await.is_err());
}

async fn until_available(semaphore: &Semaphore, permits: u32) {
    while semaphore.available().await.unwrap() != permits {
        pass(ms(1)).await;
    }
}

/// Redisson's are lost.
pub(crate) async fn permits_of_a_crashed_holder_come_back(store: &impl Fixture) {
    let crashed =
        AcquireRequest { shape: semaphore(3, 3), lease: lease(300), ..request("x", someone()) };
    // Its client is connected, but does nothing any more.
    let client = store.client();
    granted(client.acquire(crashed).await);
    let semaphore = store.tenure().semaphore("x", 3);
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    drop(semaphore.acquire_within(ms(5_000)).await.unwrap());
}

pub(crate) async fn the_watchdog_keeps_permits(store: &impl Fixture) {
    let tenure = store.tenure();
    let held = tenure.semaphore("x", 2).lease(KEPT).acquire_many(2).await.unwrap();
    pass(KEPT * 2).await;
    assert!(!held.is_lost());
    assert!(store.tenure().semaphore("x", 2).try_acquire().await.unwrap().is_none());
}

pub(crate) async fn a_higher_limit_lets_waiters_in(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let held = a.semaphore("x", 2).acquire_many(2).await.unwrap();
    let one = waiter(b.semaphore("x", 2), 1);
    until_waiting(&a, "x", 1).await;
    let two = waiter(b.semaphore("x", 2), 2);
    until_waiting(&a, "x", 2).await;
    // The latest request sets the limit of each server.
    store.until_waiting_everywhere("x", 2).await;
    a.semaphore("x", 3).apply_limit().await.unwrap();
    let first = one.await.unwrap();
    assert_eq!(a.lock("x").inspect().await.unwrap().limit, 3);
    assert!(!two.is_finished(), "there is no room for two more");
    a.semaphore("x", 5).apply_limit().await.unwrap();
    assert!(!two.await.unwrap().is_lost() && !first.is_lost() && !held.is_lost());
}

pub(crate) async fn a_lower_limit_waits_for_permits_to_come_back(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let one = a.semaphore("x", 4).acquire_many(2).await.unwrap();
    let two = a.semaphore("x", 4).acquire_many(2).await.unwrap();
    let greedy = waiter(b.semaphore("x", 4), 3);
    until_waiting(&a, "x", 1).await;
    store.until_waiting_everywhere("x", 1).await;
    a.semaphore("x", 2).apply_limit().await.unwrap();
    one.release().await.unwrap();
    assert!(!greedy.is_finished(), "as many are taken as there are now");
    assert!(a.semaphore("x", 2).try_acquire().await.unwrap().is_none());
    two.release().await.unwrap();
    assert!(!greedy.await.unwrap().is_lost(), "alone, it may have what it asked for");
}

pub(crate) async fn a_lock_and_a_semaphore_refuse_each_other(store: &impl Fixture) {
    let tenure = store.tenure();
    let locked = tenure.lock("x").acquire().await.unwrap();
    let error = tenure.semaphore("x", 3).acquire().await.unwrap_err();
    assert!(matches!(error, Error::Mismatch { kind: Kind::Mutex, limit: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("in use as a mutex"), "{error}");
    locked.release().await.unwrap();
    let permit = tenure.semaphore("x", 3).acquire().await.unwrap();
    let error = tenure.lock("x").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Mismatch { kind: Kind::Semaphore, .. }), "{error:?}");
    let error = tenure.rwlock("x").read().await.unwrap_err();
    assert!(matches!(error, Error::Mismatch { .. }), "{error:?}");
    assert!(!permit.is_lost(), "nothing was changed");
}
