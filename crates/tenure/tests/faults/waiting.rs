//! Wake-ups that are lost, early or sent twice, and questions that are overtaken.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure::{Error, Released, Tenure};

use super::fixture::{LONG, until_free, until_waiting};
use crate::common::{Faults, Kind, Stage, ms, pair, pass};

/// I7: no message arrives, and the wait is still bounded.
#[tokio::test]
async fn a_lost_wakeup_costs_bounded_time() {
    let (faulty, faults, healthy) = pair();
    let held = healthy.lock("x").acquire().await.unwrap();
    faults.loses_wakeups.store(true, Ordering::SeqCst);
    let waiter = tokio::spawn({
        let lock = faulty.lock("x");
        async move { lock.acquire().await }
    });
    until_waiting(&healthy, "x", 1).await;
    drop(held);
    // The waiter asks every five seconds, and gets the grant that it missed.
    let guard = tokio::time::timeout(LONG, waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Now);
}

/// I7: after a gap in the messages every waiter asks again at once.
#[tokio::test]
async fn a_gap_in_the_wakeups_makes_waiters_ask_again() {
    let (faulty, faults, healthy) = pair();
    let held = healthy.lock("x").acquire().await.unwrap();
    let kept = faulty.lock("kept").acquire().await.unwrap();
    faults.loses_wakeups.store(true, Ordering::SeqCst);
    let waiter = tokio::spawn({
        let lock = faulty.lock("x");
        async move { lock.acquire().await }
    });
    until_waiting(&healthy, "x", 1).await;
    drop(held);
    let renewals = faults.renewals.load(Ordering::SeqCst);
    faults.loses_wakeups.store(false, Ordering::SeqCst);
    faults.notify_missed();
    let guard = tokio::time::timeout(ms(2000), waiter).await.unwrap().unwrap().unwrap();
    assert!(faults.renewals.load(Ordering::SeqCst) > renewals, "and every holder renews");
    drop((guard, kept));
}

/// I2, I4, R19: a grant whose timestamp does not match the store's last answer, because a clock jumped or the
/// message is old, is verified with the store before it is reported.
#[tokio::test]
async fn a_grant_with_a_stamp_that_does_not_fit_is_asked_for() {
    let (faulty, faults, healthy) = pair();
    let held = healthy.lock("x").acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = faulty.lock("x");
        async move { lock.acquire().await }
    });
    until_waiting(&healthy, "x", 1).await;
    faults.jump.store(60, Ordering::SeqCst);
    faults.delay(Kind::Acquire, Stage::Request);
    drop(held);
    until_held_up(&faults, 1).await;
    assert!(!waiter.is_finished(), "the wake-up alone is not enough");
    faults.clear();
    let guard = tokio::time::timeout(ms(2000), waiter).await.unwrap().unwrap().unwrap();
    assert!(guard.remaining() <= Duration::from_secs(30), "no more than its lease");
}

/// A waiter of a client with faults, for a lock that a client without faults holds.
async fn waiter(
    faulty: &Tenure,
    healthy: &Tenure,
) -> (tenure::Guard, tokio::task::JoinHandle<Result<tenure::Guard, Error>>) {
    let held = healthy.lock("x").acquire().await.unwrap();
    let lock = faulty.lock("x");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    until_waiting(healthy, "x", 1).await;
    (held, waiter)
}

async fn until_held_up(faults: &Faults, count: usize) {
    while faults.waiting.load(Ordering::SeqCst) != count {
        pass(ms(1)).await;
    }
}

/// I7: the grant overtakes the answer "queued", and arrives before its wait group exists.
#[tokio::test]
async fn a_grant_that_comes_before_its_wait_group_is_found() {
    let (faulty, faults, healthy) = pair();
    faults.delay(Kind::Acquire, Stage::Reply);
    let (held, waiter) = waiter(&faulty, &healthy).await;
    drop(held);
    faults.clear();
    let guard = tokio::time::timeout(ms(2000), waiter).await.expect("the grant was missed");
    assert_eq!(guard.unwrap().unwrap().release().await.unwrap(), Released::Now);
}

/// I5, I8: the wait group asks, the wake-up is faster, and the lock is used and released, all while the question
/// is in flight. It arrives before the release, which decides.
#[tokio::test]
async fn a_question_before_a_release_leaves_nothing() {
    for stage in [Stage::Request, Stage::Reply] {
        let (faulty, faults, healthy) = pair();
        let (held, waiter) = waiter(&faulty, &healthy).await;
        faults.delay(Kind::Acquire, stage);
        faults.notify_missed();
        until_held_up(&faults, 1).await;
        drop(held);
        let guard = waiter.await.unwrap().unwrap();
        let release = tokio::spawn(guard.release());
        faults.clear();
        assert_eq!(release.await.unwrap().unwrap(), Released::Now);
        assert!(faulty.flush(LONG).await);
        until_free(&healthy, "x").await;
    }
}

/// I5: the same grant arrives by a wake-up and by an answer. It is one hold, and stays one.
#[tokio::test]
async fn a_grant_reported_twice_is_one_hold() {
    for stage in [Stage::Request, Stage::Reply] {
        let (faulty, faults, healthy) = pair();
        let (held, waiter) = waiter(&faulty, &healthy).await;
        faults.delay(Kind::Acquire, stage);
        faults.notify_missed();
        until_held_up(&faults, 1).await;
        drop(held);
        let guard = waiter.await.unwrap().unwrap();
        faults.clear();
        assert!(faulty.flush(LONG).await);
        let info = healthy.lock("x").inspect().await.unwrap();
        assert_eq!((info.holders[0].owner, info.holders[0].entries), (guard.owner(), 1));
        guard.ensure_held().unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::Now);
        until_free(&healthy, "x").await;
    }
}

/// I8: all tasks have left the wait group while its question is in flight.
#[tokio::test]
async fn a_question_of_a_wait_group_without_tasks_is_undone() {
    for stage in [Stage::Request, Stage::Reply] {
        let (faulty, faults, healthy) = pair();
        let (held, waiter) = waiter(&faulty, &healthy).await;
        faults.delay(Kind::Acquire, stage);
        faults.notify_missed();
        until_held_up(&faults, 1).await;
        waiter.abort();
        let _ = waiter.await;
        drop(held);
        faults.clear();
        assert!(faulty.flush(LONG).await);
        until_free(&healthy, "x").await;
    }
}
