//! Readers of one process that share a hold: the followers when their leader gives up, fails or leaves.

use std::sync::atomic::Ordering;

use tenure::{Error, Guard, RwLock, Tenure};

use super::fixture::{LONG, poll_once};
use crate::common::{Fault, Faults, Kind, Stage, ms, pair, pass};

fn reader(lock: RwLock) -> tokio::task::JoinHandle<Result<Guard, Error>> {
    tokio::spawn(async move { lock.read_within(LONG).await })
}

async fn until_held_up(faults: &Faults, count: usize) {
    while faults.waiting.load(Ordering::SeqCst) != count {
        pass(ms(1)).await;
    }
}

/// Some followers of a leading reader whose answer is in flight.
async fn party(
    faulty: &Tenure,
    faults: &Faults,
) -> Vec<tokio::task::JoinHandle<Result<Guard, Error>>> {
    faults.delay(Kind::Acquire, Stage::Reply);
    let first = reader(faulty.rwlock("x"));
    until_held_up(faults, 1).await;
    let others = (0..5).map(|_| reader(faulty.rwlock("x")));
    let party = std::iter::once(first).chain(others).collect();
    // They follow, and none of them makes a trip of its own.
    pass(ms(20)).await;
    assert_eq!(faults.acquires.load(Ordering::SeqCst), 1);
    party
}

/// All of them share one hold, which ends with the last reader.
#[tokio::test]
async fn a_party_makes_one_trip() {
    let (faulty, faults, healthy) = pair();
    let party = party(&faulty, &faults).await;
    faults.clear();
    let mut guards = Vec::new();
    for reader in party {
        guards.push(reader.await.unwrap().unwrap());
    }
    assert!(guards.iter().all(|guard| guard.owner() == guards[0].owner()));
    guards.truncate(1);
    assert!(healthy.rwlock("x").try_write().await.unwrap().is_none(), "one is left");
    guards.clear();
    drop(healthy.rwlock("x").write_within(LONG).await.unwrap());
}

/// I8: the leader leaves, and so do some followers; the rest are served, and nothing is left.
#[tokio::test]
async fn a_leading_reader_that_leaves_delays_no_follower() {
    let (faulty, faults, healthy) = pair();
    let mut party = party(&faulty, &faults).await;
    party.remove(3).abort();
    party.remove(0).abort();
    until_held_up(&faults, 2).await;
    faults.clear();
    for reader in party {
        drop(reader.await.unwrap().unwrap());
    }
    assert!(faulty.flush(LONG).await);
    drop(healthy.rwlock("x").write_within(LONG).await.unwrap());
}

/// R8: the leader has its answer, but its future is not polled any more, as in a `select!` whose other branch
/// is busy. Its followers ask the store themselves.
#[tokio::test]
async fn a_leading_reader_that_is_not_polled_delays_no_follower() {
    let (faulty, faults, healthy) = pair();
    let lock = faulty.rwlock("x");
    let mut first = Box::pin(lock.read_within(LONG));
    faults.delay(Kind::Acquire, Stage::Reply);
    assert!(poll_once(first.as_mut()).await.is_pending());
    let second = reader(faulty.rwlock("x"));
    pass(ms(20)).await;
    assert_eq!(faults.acquires.load(Ordering::SeqCst), 1, "it follows the first");
    faults.clear();
    let second = tokio::time::timeout(LONG / 2, second).await.expect("it asks the store itself");
    drop((second.unwrap().unwrap(), first));
    assert!(faulty.flush(LONG).await);
    drop(healthy.rwlock("x").write_within(LONG).await.unwrap());
}

/// R8: each has its own timeout.
#[tokio::test]
async fn the_time_of_the_first_is_not_that_of_the_others() {
    let (faulty, _, healthy) = pair();
    let written = healthy.rwlock("x").write().await.unwrap();
    let first = faulty.rwlock("x");
    let first = tokio::spawn(async move { first.read_within(ms(60)).await });
    pass(ms(5)).await;
    let other = reader(faulty.rwlock("x"));
    let error = first.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    let hasty = faulty.rwlock("x").read_within(ms(30)).await.unwrap_err();
    assert!(matches!(hasty, Error::TimedOut { .. }), "{hasty:?}");
    written.release().await.unwrap();
    drop(other.await.unwrap().unwrap());
}

/// R24: an error is reported to all at once; they do not retry one after another.
#[tokio::test]
async fn an_error_of_the_leading_reader_is_reported_to_all() {
    let (faulty, faults, _) = pair();
    let party = party(&faulty, &faults).await;
    faults.clear();
    faults.cut(Fault::Refused);
    let late = reader(faulty.rwlock("y"));
    pass(ms(1)).await;
    let later = reader(faulty.rwlock("y"));
    for reader in [late, later] {
        let error = tokio::time::timeout(ms(2_000), reader).await.expect("at once");
        let error = error.unwrap().unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    }
    drop(party);
}
