//! Wake-ups that are lost, early or told twice, and questions that are overtaken.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure::{Error, Released, Tenure};

use super::fixture::{LONG, until_free, until_waiting};
use crate::common::{Kind, Stage, Weather, ms, pair, pass};

/// I7: no message arrives, and the wait is still bounded.
#[tokio::test]
async fn a_lost_wakeup_costs_bounded_time() {
    let (troubled, weather, calm) = pair();
    let held = calm.lock("x").acquire().await.unwrap();
    weather.is_deaf.store(true, Ordering::SeqCst);
    let waiter = tokio::spawn({
        let lock = troubled.lock("x");
        async move { lock.acquire().await }
    });
    until_waiting(&calm, "x", 1).await;
    drop(held);
    // The heartbeat is asked every five seconds, and brings the grant that was missed.
    let guard = tokio::time::timeout(LONG, waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Now);
}

/// I7: after a gap in the messages everyone asks again at once.
#[tokio::test]
async fn a_gap_in_the_wakeups_makes_waiters_ask_again() {
    let (troubled, weather, calm) = pair();
    let held = calm.lock("x").acquire().await.unwrap();
    let kept = troubled.lock("kept").acquire().await.unwrap();
    weather.is_deaf.store(true, Ordering::SeqCst);
    let waiter = tokio::spawn({
        let lock = troubled.lock("x");
        async move { lock.acquire().await }
    });
    until_waiting(&calm, "x", 1).await;
    drop(held);
    let renewals = weather.renewals.load(Ordering::SeqCst);
    weather.is_deaf.store(false, Ordering::SeqCst);
    weather.tell_missed();
    let guard = tokio::time::timeout(ms(2000), waiter).await.unwrap().unwrap().unwrap();
    assert!(weather.renewals.load(Ordering::SeqCst) > renewals, "and every holder renews");
    drop((guard, kept));
}

/// I2, I4, R19: a grant whose stamp does not fit what the store last said, because a clock jumped or the
/// message is old, is asked for before it is reported.
#[tokio::test]
async fn a_grant_with_a_stamp_that_does_not_fit_is_asked_for() {
    let (troubled, weather, calm) = pair();
    let held = calm.lock("x").acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = troubled.lock("x");
        async move { lock.acquire().await }
    });
    until_waiting(&calm, "x", 1).await;
    weather.jump.store(60, Ordering::SeqCst);
    weather.hold_up(Kind::Acquire, Stage::Request);
    drop(held);
    until_held_up(&weather, 1).await;
    assert!(!waiter.is_finished(), "what it was told by then is not enough");
    weather.clear();
    let guard = tokio::time::timeout(ms(2000), waiter).await.unwrap().unwrap().unwrap();
    assert!(guard.remaining() <= Duration::from_secs(30), "no more than its lease");
}

/// A waiter in bad weather for a lock that is held in good weather.
async fn waiter(
    troubled: &Tenure,
    calm: &Tenure,
) -> (tenure::Guard, tokio::task::JoinHandle<Result<tenure::Guard, Error>>) {
    let held = calm.lock("x").acquire().await.unwrap();
    let lock = troubled.lock("x");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    until_waiting(calm, "x", 1).await;
    (held, waiter)
}

async fn until_held_up(weather: &Weather, count: usize) {
    while weather.waiting.load(Ordering::SeqCst) != count {
        pass(ms(1)).await;
    }
}

/// I7: the grant overtakes the answer that says "queued". Nobody listens for it yet.
#[tokio::test]
async fn a_grant_that_comes_before_its_line_is_found() {
    let (troubled, weather, calm) = pair();
    weather.hold_up(Kind::Acquire, Stage::Reply);
    let (held, waiter) = waiter(&troubled, &calm).await;
    drop(held);
    weather.clear();
    let guard = tokio::time::timeout(ms(2000), waiter).await.expect("the grant was missed");
    assert_eq!(guard.unwrap().unwrap().release().await.unwrap(), Released::Now);
}

/// I5, I8: the line asks, the wake-up is faster, and the lock is used and released, all while the question
/// is on its way. It arrives before the release, which is the one that counts.
#[tokio::test]
async fn a_question_before_a_release_leaves_nothing() {
    for stage in [Stage::Request, Stage::Reply] {
        let (troubled, weather, calm) = pair();
        let (held, waiter) = waiter(&troubled, &calm).await;
        weather.hold_up(Kind::Acquire, stage);
        weather.tell_missed();
        until_held_up(&weather, 1).await;
        drop(held);
        let guard = waiter.await.unwrap().unwrap();
        let release = tokio::spawn(guard.release());
        weather.clear();
        assert_eq!(release.await.unwrap().unwrap(), Released::Now);
        assert!(troubled.flush(LONG).await);
        until_free(&calm, "x").await;
    }
}

/// I5: the same grant is told by a wake-up and by an answer. It is one hold, and stays so.
#[tokio::test]
async fn a_grant_told_twice_is_one_hold() {
    for stage in [Stage::Request, Stage::Reply] {
        let (troubled, weather, calm) = pair();
        let (held, waiter) = waiter(&troubled, &calm).await;
        weather.hold_up(Kind::Acquire, stage);
        weather.tell_missed();
        until_held_up(&weather, 1).await;
        drop(held);
        let guard = waiter.await.unwrap().unwrap();
        weather.clear();
        assert!(troubled.flush(LONG).await);
        let info = calm.lock("x").inspect().await.unwrap();
        assert_eq!((info.holders[0].owner, info.holders[0].entries), (guard.owner(), 1));
        guard.ensure_held().unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::Now);
        until_free(&calm, "x").await;
    }
}

/// I8: everyone has left the line while its question is on the way.
#[tokio::test]
async fn a_question_of_a_line_that_everyone_left_is_undone() {
    for stage in [Stage::Request, Stage::Reply] {
        let (troubled, weather, calm) = pair();
        let (held, waiter) = waiter(&troubled, &calm).await;
        weather.hold_up(Kind::Acquire, stage);
        weather.tell_missed();
        until_held_up(&weather, 1).await;
        waiter.abort();
        let _ = waiter.await;
        drop(held);
        weather.clear();
        assert!(troubled.flush(LONG).await);
        until_free(&calm, "x").await;
    }
}
