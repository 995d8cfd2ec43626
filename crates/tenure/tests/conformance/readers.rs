//! R27: read-write locks.

use tenure::engine::AcquireRequest;
use tenure::{Error, Guard, Kind, Owner, RwLock, Shape};

use super::fixture::{Fixture, granted, is_later, lease, ms, request, someone};
use super::locks::until_waiting;

/// A waiting reader, in a task of its own.
fn reader(lock: RwLock) -> tokio::task::JoinHandle<Guard> {
    tokio::spawn(async move { lock.read().await.unwrap() })
}

fn writer(lock: RwLock) -> tokio::task::JoinHandle<Guard> {
    tokio::spawn(async move { lock.write().await.unwrap().into_guard() })
}

pub(crate) async fn readers_share_and_a_writer_is_alone(store: &impl Fixture) {
    let (a, b) = (store.tenure().rwlock("x"), store.tenure().rwlock("x"));
    let (one, other) = (a.read().await.unwrap(), b.read().await.unwrap());
    assert!(a.try_write().await.unwrap().is_none());
    assert_eq!(a.inspect().await.unwrap().holders.len(), 2);
    one.release().await.unwrap();
    assert!(a.try_write().await.unwrap().is_none(), "one still reads");
    other.release().await.unwrap();
    let written = b.write().await.unwrap();
    assert!(a.try_read().await.unwrap().is_none());
    assert!(a.try_write().await.unwrap().is_none());
    written.release().await.unwrap();
    assert!(a.try_read().await.unwrap().is_some());
}

/// I10.
pub(crate) async fn a_waiting_writer_is_not_overtaken(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    // In a cluster, a client subscribes when it first waits in a slot, and is passed over until it has.
    let reading = a.rwlock("x").read().await.unwrap();
    let writing = writer(b.rwlock("x"));
    until_waiting(&a, "x", 1).await;
    drop(reading);
    drop(writing.await.unwrap());

    let reading = a.rwlock("x").read().await.unwrap();
    let writing = writer(b.rwlock("x"));
    until_waiting(&a, "x", 1).await;
    let fair = a.rwlock("x").fair();
    assert!(fair.try_read().await.unwrap().is_none(), "a writer waits");
    let late = reader(fair);
    until_waiting(&a, "x", 2).await;
    drop(reading);
    let written = writing.await.unwrap();
    assert!(!late.is_finished());
    let fence = written.fence();
    drop(written);
    assert!(late.await.unwrap().fence() > fence, "I4");
}

/// I1: two entries of one owner wait, one to read and one to write. The writer got the lock together with the reader, with that one's permit,
/// and other readers beside it.
pub(crate) async fn a_waiting_writer_does_not_come_along_with_a_reader(store: &impl Fixture) {
    let (a, b, c) = (store.tenure(), store.tenure(), store.tenure());
    let owner = Owner::new();
    let written = a.rwlock("x").write().await.unwrap();
    let reading = reader(b.rwlock("x").owner(owner));
    until_waiting(&a, "x", 1).await;
    let lock = c.rwlock("x").owner(owner);
    let writing = tokio::spawn(async move { lock.write().await.map(drop) });
    until_waiting(&a, "x", 2).await;
    drop(written);
    let reads = reading.await.unwrap();
    let refused = writing.await.unwrap().unwrap_err();
    assert!(matches!(refused, Error::Upgrade { held: 1, .. }), "{refused:?}");
    assert!(a.rwlock("x").try_read().await.unwrap().is_some(), "none waits");
    drop(reads);
    drop(a.rwlock("x").write().await.unwrap());
}

/// I10: readers of one process share a hold, for a bounded time; later readers come after a waiting
/// writer.
pub(crate) async fn readers_of_a_process_share_within_bounds(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let lock = a.rwlock("x");
    let first = lock.read().await.unwrap();
    let second = lock.read().await.unwrap();
    let holders = |info: tenure::LockInfo| info.holders.len();
    if first.owner() == second.owner() {
        assert_eq!(holders(lock.inspect().await.unwrap()), 1, "unless the machine was very slow");
    }
    drop(first);
    assert!(b.rwlock("x").try_write().await.unwrap().is_none(), "the other still reads");
    let writing = writer(b.rwlock("x"));
    until_waiting(&a, "x", 1).await;
    super::fixture::pass(ms(60)).await;
    assert!(lock.try_read().await.unwrap().is_none(), "too late to read along");
    drop(second);
    drop(writing.await.unwrap());
    // No more than 64 on one hold, however fast they arrive.
    let mut readers = Vec::new();
    for _ in 0..200 {
        readers.push(lock.read().await.unwrap());
    }
    assert!(holders(lock.inspect().await.unwrap()) >= 4);
    drop(readers);
    drop(lock.write_within(ms(5_000)).await.unwrap());
}

/// Every reader has a lease of its own.
pub(crate) async fn a_crashed_reader_delays_a_writer_by_its_lease(store: &impl Fixture) {
    let crashed = AcquireRequest {
        shape: Shape::new(Kind::ReadWrite, Shape::MAX_LIMIT, 1).unwrap(),
        lease: lease(300),
        ..request("x", someone())
    };
    // Its client is connected, but does nothing any more.
    let client = store.client();
    granted(client.acquire(crashed).await);
    let lock = store.tenure().rwlock("x");
    let alive = lock.read().await.unwrap();
    assert!(lock.try_write().await.unwrap().is_none());
    drop(alive);
    let written = lock.write_within(ms(5_000)).await.unwrap();
    assert!(!written.is_lost());
}

pub(crate) async fn an_upgrade_is_refused(store: &impl Fixture) {
    let lock = store.tenure().rwlock("x");
    let other = store.tenure().rwlock("x");
    Owner::new()
        .scope(async {
            let _reading = lock.read().await.unwrap();
            let _also = other.read().await.unwrap();
            let error = lock.write().await.unwrap_err();
            assert!(matches!(error, Error::Upgrade { held: 1, .. }), "{error:?}");
            assert!(error.to_string().contains("release it before asking for more"), "{error}");
        })
        .await;
    assert!(lock.write_within(ms(5_000)).await.is_ok(), "nothing is left of it");
}

pub(crate) async fn a_writer_may_read(store: &impl Fixture) {
    let (lock, other) = (store.tenure().rwlock("x"), store.tenure().rwlock("x"));
    Owner::new()
        .scope(async {
            let writing = lock.write().await.unwrap();
            let reading = lock.read().await.unwrap();
            assert_eq!(writing.fence(), reading.fence());
            writing.release().await.unwrap();
            assert!(!reading.is_lost());
            let other = Owner::new().scope(other.try_write()).await.unwrap();
            assert!(other.is_none());
        })
        .await;
    drop(other.write_within(ms(5_000)).await.unwrap());
}

pub(crate) async fn a_writer_becomes_a_reader_without_a_gap(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let written = a.rwlock("x").write().await.unwrap();
    let fence = written.fence();
    let next_reader = reader(b.rwlock("x"));
    until_waiting(&a, "x", 1).await;
    let next_writer = writer(b.rwlock("x"));
    until_waiting(&a, "x", 2).await;
    let reading = written.downgrade().await;
    assert_eq!(reading.fence(), fence, "it is the same hold");
    let other = next_reader.await.unwrap();
    assert!(!next_writer.is_finished());
    reading.release().await.unwrap();
    assert!(!next_writer.is_finished());
    other.release().await.unwrap();
    assert!(is_later(Kind::ReadWrite, next_writer.await.unwrap().fence(), fence));
}

/// Giving back permits that another guard of the same owner holds would admit others beside it.
pub(crate) async fn an_owner_that_entered_twice_stays_a_writer(store: &impl Fixture) {
    let (lock, other) = (store.tenure().rwlock("x"), store.tenure().rwlock("x"));
    Owner::new()
        .scope(async {
            let (one, two) = (lock.write().await.unwrap(), lock.write().await.unwrap());
            let reading = one.downgrade().await;
            let other = Owner::new().scope(other.try_read()).await.unwrap();
            assert!(other.is_none(), "the second guard still writes");
            two.release().await.unwrap();
            assert!(!reading.is_lost());
        })
        .await;
    drop(other.write_within(ms(5_000)).await.unwrap());
}
