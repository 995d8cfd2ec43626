//! Lost requests, lost replies, lost messages, and futures dropped anywhere (I5 to I9).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use common::{Fault, Kind, Stage, Weather, ms, pair, pass};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tenure::engine::MemoryEngine;
use tenure::{Backoff, Error, Fallback, LockInfo, Released, Tenure, Wait, WhyLost};

const LONG: Duration = Duration::from_secs(20);

/// Waits until the store shows what is expected; long enough, and not for ever.
async fn until(tenure: &Tenure, name: &str, is_so: impl Fn(&LockInfo) -> bool) {
    let lock = tenure.lock(name);
    let seen = tokio::time::timeout(LONG, async {
        while !is_so(&lock.inspect().await.unwrap()) {
            pass(ms(1)).await;
        }
    });
    if seen.await.is_err() {
        panic!("it stays so: {:?}", lock.inspect().await);
    }
}

/// Waits until a lock is free and nobody wants it.
async fn until_free(tenure: &Tenure, name: &str) {
    until(tenure, name, |info| info.is_free() && info.waiting == 0).await;
}

/// Waits until so many stand in the queue.
async fn until_waiting(tenure: &Tenure, name: &str, count: usize) {
    until(tenure, name, |info| info.waiting == count).await;
}

/// R31: the same entry is asked for again, and gets the same grant, once.
#[tokio::test]
async fn an_acquire_whose_reply_is_lost_is_asked_for_again() {
    let (troubled, weather, calm) = pair();
    weather.once(Kind::Acquire, Fault::ReplyLost);
    let guard = troubled.lock("x").acquire().await.unwrap();
    assert_eq!(weather.acquires.load(Ordering::SeqCst), 2);
    let info = calm.lock("x").inspect().await.unwrap();
    assert_eq!((info.holders[0].entries, info.holders[0].fence), (1, guard.fence()));
    assert_eq!(guard.release().await.unwrap(), Released::Now);
    until_free(&calm, "x").await;
}

/// I6: unknown is never reported as refused, and what it may have left is undone.
#[tokio::test]
async fn an_unknown_acquire_that_is_given_up_is_released() {
    let (troubled, weather, calm) = pair();
    weather.once(Kind::Acquire, Fault::ReplyLost);
    let error = troubled.lock("x").try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    assert!(error.to_string().contains("`x`"), "{error}");
    until_free(&calm, "x").await;

    // Undone as well when the way is cut for a while right after.
    weather.once(Kind::Acquire, Fault::ReplyLost);
    weather.always(Kind::Cancel, Fault::RequestLost);
    troubled.lock("x").try_acquire().await.unwrap_err();
    assert!(calm.lock("x").try_acquire().await.unwrap().is_none(), "granted to nobody yet");
    weather.clear();
    until_free(&calm, "x").await;
    assert!(troubled.flush(LONG).await);
}

/// I6: a refusal after an unanswered attempt does not make it known.
#[tokio::test]
async fn a_later_refusal_does_not_hide_an_unknown_outcome() {
    let (troubled, weather, calm) = pair();
    weather.once(Kind::Acquire, Fault::ReplyLost);
    weather.always(Kind::Acquire, Fault::Refused);
    let error = troubled.lock("x").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    until_free(&calm, "x").await;
}

/// R24.
#[tokio::test]
async fn an_unreachable_store_is_told_apart_from_a_busy_lock() {
    let (troubled, weather, calm) = pair();
    let held = calm.lock("x").acquire().await.unwrap();
    assert!(troubled.lock("x").try_acquire().await.unwrap().is_none(), "busy");
    weather.cut(Fault::Refused);
    for error in [
        troubled.lock("x").try_acquire().await.unwrap_err(),
        troubled.lock("x").acquire().await.unwrap_err(),
        troubled.lock("x").acquire_within(ms(50)).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        assert_eq!(error.to_string(), "could not acquire `x`: connection refused");
    }
    drop(held);
}

/// R22: the caller chose a local lock for when the store is away, and sees that it got one.
#[test]
fn the_fallback_is_local_and_visible() {
    let faulty = common::Faulty::new(MemoryEngine::new());
    let weather = faulty.weather();
    let builder = Tenure::builder().fallback(Fallback::Local).patience(ms(50));
    let tenure = builder.engine(faulty).unwrap();
    let recorder = DebuggingRecorder::new();
    let seen = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        tenure::blocking::block_on(async {
            assert!(!tenure.lock("x").acquire().await.unwrap().is_degraded());
            weather.cut(Fault::Refused);
            let guard = tenure.lock("x").acquire().await.unwrap();
            assert!(guard.is_degraded());
            assert!(tenure.lock("x").try_acquire().await.unwrap().is_none(), "exclusive here");
            guard.release().await.unwrap();
            weather.clear();
            assert!(!tenure.lock("x").acquire().await.unwrap().is_degraded());
        });
    });
    let fallbacks = seen.snapshot().into_vec().into_iter().find_map(|(key, _, _, value)| {
        (key.key().name() == "tenure_fallbacks_total").then_some(value)
    });
    assert_eq!(fallbacks, Some(DebugValue::Counter(2)));
}

/// A lost renewal leaves the old deadline standing; the next one saves the lock.
#[tokio::test]
async fn a_lock_survives_renewals_that_fail_for_a_while() {
    let (troubled, weather, _) = pair();
    let guard = troubled.lock("x").lease(ms(600)).acquire().await.unwrap();
    for fault in [Fault::Refused, Fault::RequestLost, Fault::ReplyLost] {
        weather.once(Kind::Renew, fault);
    }
    while weather.renewals.load(Ordering::SeqCst) < 6 {
        pass(ms(10)).await;
        assert!(!guard.is_lost());
    }
    assert_eq!(guard.release().await.unwrap(), Released::Now);
}

/// I9: cut off, the holder is told before the store lets anyone else in.
#[tokio::test]
async fn a_holder_that_is_cut_off_is_told_in_time() {
    let (troubled, weather, calm) = pair();
    let guard = troubled.lock("x").lease(ms(500)).acquire().await.unwrap();
    weather.cut(Fault::RequestLost);
    assert_eq!(guard.lost().await.why(), WhyLost::LeaseEnded);
    assert!(!calm.lock("x").inspect().await.unwrap().is_free(), "told too late");
    let next = calm.lock("x").acquire_within(LONG).await.unwrap();
    weather.clear();
    drop(guard);
    assert!(troubled.flush(LONG).await);
    assert_eq!(calm.lock("x").inspect().await.unwrap().holders[0].owner, next.owner(), "I3");
}

/// R31: "already gone" is success for a release that was sent twice.
#[tokio::test]
async fn a_release_whose_reply_is_lost_goes_on_in_the_background() {
    let (troubled, weather, calm) = pair();
    for fault in [Fault::ReplyLost, Fault::RequestLost, Fault::Refused] {
        let guard = troubled.lock("x").acquire().await.unwrap();
        weather.once(Kind::Release, fault);
        let error = guard.release().await.unwrap_err();
        let is_unknown = matches!(error, Error::Unknown { .. });
        assert_eq!(is_unknown, fault != Fault::Refused, "{error:?}");
        until_free(&calm, "x").await;
    }
    let guard = troubled.lock("x").acquire().await.unwrap();
    weather.once(Kind::Release, Fault::RequestLost);
    drop(guard);
    until_free(&calm, "x").await;
}

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

/// I2, R19: a grant stamped by a clock that jumped is confirmed before it is reported.
#[tokio::test]
async fn a_grant_from_a_clock_that_jumped_is_confirmed() {
    let (troubled, weather, calm) = pair();
    let held = calm.lock("x").acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = troubled.lock("x");
        async move { lock.acquire().await }
    });
    until_waiting(&calm, "x", 1).await;
    weather.jump.store(60, Ordering::SeqCst);
    let renewals = weather.renewals.load(Ordering::SeqCst);
    drop(held);
    let guard = tokio::time::timeout(ms(2000), waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(weather.renewals.load(Ordering::SeqCst), renewals + 1);
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

/// R8, I6: the time allowed holds also when the store does not answer; what may have been granted
/// is given back.
#[tokio::test]
async fn the_time_allowed_holds_without_an_answer() {
    for stage in [Stage::Request, Stage::Reply] {
        time_allowed_without_an_answer(stage).await;
    }
}

async fn time_allowed_without_an_answer(stage: Stage) {
    let (troubled, weather, calm) = pair();
    weather.hold_up(Kind::Acquire, stage);
    let lock = troubled.lock("x");
    let acquire = lock.acquire_within(ms(50));
    let error = tokio::time::timeout(ms(2000), acquire).await.expect("in time").unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    weather.clear();
    assert!(troubled.flush(LONG).await);
    until_free(&calm, "x").await;
}

/// R8: a store that said "busy" before, and is slow at the end, is no unknown outcome: the time is
/// over.
#[tokio::test]
async fn time_that_ends_during_a_later_attempt_is_over() {
    let (troubled, weather, calm) = pair();
    let held = calm.lock("x").acquire().await.unwrap();
    let slow_down = {
        let weather = weather.clone();
        move |_| {
            weather.hold_up(Kind::Acquire, Stage::Reply);
            ms(1)
        }
    };
    let wait = Wait::within(ms(50)).retry(Backoff::custom(slow_down));
    let error = troubled.lock("x").acquire_with(wait).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    drop(held);
    weather.clear();
    assert!(troubled.flush(LONG).await);
    until_free(&calm, "x").await;
}

/// I5, I8: the line asks, the wake-up is faster, the lock is used and released; then the question
/// arrives, and takes the lock for nobody.
#[tokio::test]
async fn a_question_overtaken_by_a_release_is_undone() {
    let (troubled, weather, calm) = pair();
    let (held, waiter) = waiter(&troubled, &calm).await;
    weather.hold_up(Kind::Acquire, Stage::Request);
    weather.tell_missed();
    until_held_up(&weather, 1).await;
    drop(held);
    let guard = waiter.await.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Now);
    weather.clear();
    assert!(troubled.flush(LONG).await);
    until_free(&calm, "x").await;
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

/// I8: polled k times and dropped, for every k, on a store whose answers take several polls; with
/// the lock free, held, and handed over in the middle of it.
#[tokio::test]
async fn an_acquire_dropped_at_any_await_leaves_nothing() {
    for polls_per_answer in [0, 1, 4] {
        for polls in 0..16 {
            for situation in ["free", "held", "released midway"] {
                drop_after(polls_per_answer, polls, situation).await;
            }
        }
    }
}

async fn drop_after(polls_per_answer: usize, polls: usize, situation: &str) {
    let (troubled, weather, calm) = pair();
    weather.polls.store(polls_per_answer, Ordering::SeqCst);
    let mut held = match situation {
        "free" => None,
        _ => Some(calm.lock("x").acquire().await.unwrap()),
    };
    {
        let lock = troubled.lock("x");
        let mut acquire = pin!(lock.acquire());
        for round in 0..polls {
            if situation == "released midway" && round == polls / 2 {
                held = None;
            }
            let polled = poll_fn(|context| Poll::Ready(acquire.as_mut().poll(context))).await;
            if polled.is_ready() {
                break;
            }
        }
    }
    drop(held);
    assert!(troubled.flush(LONG).await, "{polls} polls, {situation}");
    until_free(&calm, "x").await;
}

/// I8: a release that is dropped goes on, for every k.
#[tokio::test]
async fn a_release_dropped_at_any_await_still_releases() {
    for polls in 0..8 {
        let (troubled, weather, calm) = pair();
        weather.polls.store(4, Ordering::SeqCst);
        let guard = troubled.lock("x").acquire().await.unwrap();
        {
            let mut release = pin!(guard.release());
            for _ in 0..polls {
                let polled = poll_fn(|context| Poll::Ready(release.as_mut().poll(context))).await;
                if polled.is_ready() {
                    break;
                }
            }
        }
        until_free(&calm, "x").await;
    }
}

/// I6, I8: everything at once. Whatever is lost, nobody is let in beside a holder, and in the end
/// nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_leaks_in_a_storm() {
    let (troubled, weather, calm) = pair();
    weather.polls.store(2, Ordering::SeqCst);
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let tasks: Vec<_> = (0..12u64)
        .map(|task| {
            let client = if task % 3 == 0 { calm.clone() } else { troubled.clone() };
            let inside = inside.clone();
            tokio::spawn(async move {
                for round in 0..60u64 {
                    let patience = ms(1 + (task * 7 + round * 13) % 40);
                    let Ok(guard) = client.lock("x").acquire_within(patience).await else {
                        continue;
                    };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "I1");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    if round % 2 == 0 {
                        drop(guard);
                    } else {
                        let _ = guard.release().await;
                    }
                }
            })
        })
        .collect();
    let storm = tokio::spawn({
        let weather = weather.clone();
        async move {
            let kinds = [Kind::Acquire, Kind::Release, Kind::Cancel, Kind::Renew];
            let faults = [Fault::ReplyLost, Fault::RequestLost, Fault::Refused];
            for round in 0.. {
                weather.once(kinds[round % 4], faults[round % 3]);
                weather.is_deaf.store(round % 5 == 0, Ordering::SeqCst);
                pass(ms(1)).await;
            }
        }
    });
    for task in tasks {
        task.await.unwrap();
    }
    storm.abort();
    weather.clear();
    assert!(troubled.flush(LONG).await);
    until_free(&calm, "x").await;
}
