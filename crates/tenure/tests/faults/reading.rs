//! Readers of one process that share a hold: what becomes of the others when the first of them gives
//! up, fails or leaves.

use std::sync::atomic::Ordering;

use tenure::{Error, Guard, RwLock, Tenure};

use super::fixture::{LONG, poll_once};
use crate::common::{Fault, Kind, Stage, Weather, ms, pair, pass};

fn reader(lock: RwLock) -> tokio::task::JoinHandle<Result<Guard, Error>> {
    tokio::spawn(async move { lock.read_within(LONG).await })
}

async fn until_held_up(weather: &Weather, count: usize) {
    while weather.waiting.load(Ordering::SeqCst) != count {
        pass(ms(1)).await;
    }
}

/// Some readers behind a first one whose answer is on its way.
async fn party(
    troubled: &Tenure,
    weather: &Weather,
) -> Vec<tokio::task::JoinHandle<Result<Guard, Error>>> {
    weather.hold_up(Kind::Acquire, Stage::Reply);
    let first = reader(troubled.rwlock("x"));
    until_held_up(weather, 1).await;
    let others = (0..5).map(|_| reader(troubled.rwlock("x")));
    let party = std::iter::once(first).chain(others).collect();
    // They set out, and none of them makes a trip of its own.
    pass(ms(20)).await;
    assert_eq!(weather.acquires.load(Ordering::SeqCst), 1);
    party
}

/// All readers of a party stand on one hold, which ends with the last of them.
#[tokio::test]
async fn a_party_makes_one_trip() {
    let (troubled, weather, calm) = pair();
    let party = party(&troubled, &weather).await;
    weather.clear();
    let mut guards = Vec::new();
    for reader in party {
        guards.push(reader.await.unwrap().unwrap());
    }
    assert!(guards.iter().all(|guard| guard.owner() == guards[0].owner()));
    guards.truncate(1);
    assert!(calm.rwlock("x").try_write().await.unwrap().is_none(), "one is left");
    guards.clear();
    drop(calm.rwlock("x").write_within(LONG).await.unwrap());
}

/// I8: the first leaves, and so do some of the others; the rest get on, and nothing is left.
#[tokio::test]
async fn a_first_reader_that_leaves_holds_up_nobody() {
    let (troubled, weather, calm) = pair();
    let mut party = party(&troubled, &weather).await;
    party.remove(3).abort();
    party.remove(0).abort();
    until_held_up(&weather, 2).await;
    weather.clear();
    for reader in party {
        drop(reader.await.unwrap().unwrap());
    }
    assert!(troubled.flush(LONG).await);
    drop(calm.rwlock("x").write_within(LONG).await.unwrap());
}

/// R8: the first has its answer, and nobody polls it any more, as in a `select!` whose other branch is
/// busy. Those behind it go themselves.
#[tokio::test]
async fn a_first_reader_that_is_not_polled_holds_up_nobody() {
    let (troubled, weather, calm) = pair();
    let lock = troubled.rwlock("x");
    let mut first = Box::pin(lock.read_within(LONG));
    weather.hold_up(Kind::Acquire, Stage::Reply);
    assert!(poll_once(first.as_mut()).await.is_pending());
    let second = reader(troubled.rwlock("x"));
    pass(ms(20)).await;
    assert_eq!(weather.acquires.load(Ordering::SeqCst), 1, "it follows the first");
    weather.clear();
    let second = tokio::time::timeout(LONG / 2, second).await.expect("it goes by itself");
    drop((second.unwrap().unwrap(), first));
    assert!(troubled.flush(LONG).await);
    drop(calm.rwlock("x").write_within(LONG).await.unwrap());
}

/// R8: each has its own time.
#[tokio::test]
async fn the_time_of_the_first_is_not_that_of_the_others() {
    let (troubled, _, calm) = pair();
    let written = calm.rwlock("x").write().await.unwrap();
    let first = troubled.rwlock("x");
    let first = tokio::spawn(async move { first.read_within(ms(60)).await });
    pass(ms(5)).await;
    let other = reader(troubled.rwlock("x"));
    let error = first.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    let hasty = troubled.rwlock("x").read_within(ms(30)).await.unwrap_err();
    assert!(matches!(hasty, Error::TimedOut { .. }), "{hasty:?}");
    written.release().await.unwrap();
    drop(other.await.unwrap().unwrap());
}

/// R24: trouble is told to all at once; they do not endure it one after another.
#[tokio::test]
async fn trouble_of_the_first_is_told_to_all() {
    let (troubled, weather, _) = pair();
    let party = party(&troubled, &weather).await;
    weather.clear();
    weather.cut(Fault::Refused);
    let late = reader(troubled.rwlock("y"));
    pass(ms(1)).await;
    let later = reader(troubled.rwlock("y"));
    for reader in [late, later] {
        let error = tokio::time::timeout(ms(2_000), reader).await.expect("at once");
        let error = error.unwrap().unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    }
    drop(party);
}
