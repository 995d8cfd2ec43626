//! Acquires whose requests and answers are lost, late, or not waited for.

use std::pin::pin;
use std::sync::atomic::Ordering;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tenure::engine::{MemoryEngine, Wakeup};
use tenure::{Backoff, Error, Fallback, Released, Tenure, Wait};

use super::fixture::{LONG, poll_once, until_free, until_waiting};
use crate::common::{Fault, Faults, Faulty, Kind, Stage, ms, pair, pass};

/// R31: the same entry is requested again, and gets the same grant, once.
#[tokio::test]
async fn an_acquire_whose_reply_is_lost_is_asked_for_again() {
    let (faulty, faults, healthy) = pair();
    faults.once(Kind::Acquire, Fault::ReplyLost);
    let guard = faulty.lock("x").acquire().await.unwrap();
    assert_eq!(faults.acquires.load(Ordering::SeqCst), 2);
    let info = healthy.lock("x").inspect().await.unwrap();
    assert_eq!((info.holders[0].entries, info.holders[0].fence), (1, guard.fence()));
    assert_eq!(guard.release().await.unwrap(), Released::Now);
    until_free(&healthy, "x").await;
}

/// Reports so often that the store can be reached again that pauses would take minutes, if that did not end them.
async fn return_often(faults: &Faults) {
    let returning = async {
        for _ in 0..200 {
            let before = faults.acquires.load(Ordering::SeqCst);
            faults.wake(Wakeup::Returned);
            while faults.acquires.load(Ordering::SeqCst) == before {
                pass(ms(1)).await;
            }
        }
    };
    tokio::time::timeout(LONG, returning).await.expect("each return ends the pauses");
}

/// I7: pauses after errors grow to a second. A store that can be reached again is asked at once, by a new acquire and by one
/// that waits in the queue.
#[tokio::test]
async fn a_pause_after_an_error_ends_when_the_store_returns() {
    let store = MemoryEngine::new();
    let engine = Faulty::new(store.another());
    let faults = engine.faults();
    let patient = Tenure::builder().patience(10 * LONG).engine(engine).unwrap();
    let healthy = Tenure::builder().engine(store.another()).unwrap();

    let holder = healthy.lock("queued").acquire().await.unwrap();
    let lock = patient.lock("queued");
    let queued = tokio::spawn(async move { lock.acquire().await });
    until_waiting(&healthy, "queued", 1).await;
    faults.always(Kind::Acquire, Fault::Refused);
    faults.notify_missed();
    return_often(&faults).await;
    faults.clear();
    drop(holder);
    faults.wake(Wakeup::Returned);
    drop(queued.await.unwrap().unwrap());

    faults.always(Kind::Acquire, Fault::Refused);
    let lock = patient.lock("new");
    let new = tokio::spawn(async move { lock.acquire().await });
    return_often(&faults).await;
    faults.clear();
    faults.wake(Wakeup::Returned);
    drop(new.await.unwrap().unwrap());
}

/// I6: unknown is never reported as refused, and its possible effect is undone.
#[tokio::test]
async fn an_unknown_acquire_that_is_given_up_is_released() {
    let (faulty, faults, healthy) = pair();
    faults.once(Kind::Acquire, Fault::ReplyLost);
    let error = faulty.lock("x").try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    assert!(error.to_string().contains("`x`"), "{error}");
    until_free(&healthy, "x").await;

    // Undone also if the store is unreachable for a while right after.
    faults.once(Kind::Acquire, Fault::ReplyLost);
    faults.always(Kind::Cancel, Fault::RequestLost);
    faulty.lock("x").try_acquire().await.unwrap_err();
    assert!(
        healthy.lock("x").try_acquire().await.unwrap().is_none(),
        "still granted to the lost acquire"
    );
    faults.clear();
    until_free(&healthy, "x").await;
    assert!(faulty.flush(LONG).await);
}

/// I6: a refusal after an unanswered attempt does not make it known.
#[tokio::test]
async fn a_later_refusal_does_not_hide_an_unknown_outcome() {
    let (faulty, faults, healthy) = pair();
    faults.once(Kind::Acquire, Fault::ReplyLost);
    faults.always(Kind::Acquire, Fault::Refused);
    let error = faulty.lock("x").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    until_free(&healthy, "x").await;
}

/// R24.
#[tokio::test]
async fn an_unreachable_store_is_distinguished_from_a_busy_lock() {
    let (faulty, faults, healthy) = pair();
    let held = healthy.lock("x").acquire().await.unwrap();
    assert!(faulty.lock("x").try_acquire().await.unwrap().is_none(), "busy");
    faults.cut(Fault::Refused);
    for error in [
        faulty.lock("x").try_acquire().await.unwrap_err(),
        faulty.lock("x").acquire().await.unwrap_err(),
        faulty.lock("x").acquire_within(ms(50)).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        assert_eq!(error.to_string(), "could not acquire `x`: connection refused");
    }
    drop(held);
}

/// R22: the caller chose a local lock as the fallback, and the guard reports it.
#[test]
fn the_fallback_is_local_and_visible() {
    let engine = Faulty::new(MemoryEngine::new());
    let faults = engine.faults();
    let builder = Tenure::builder().fallback(Fallback::Process).patience(ms(50));
    let tenure = builder.engine(engine).unwrap();
    let recorder = DebuggingRecorder::new();
    let seen = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        tenure::blocking::block_on(async {
            assert!(!tenure.lock("x").acquire().await.unwrap().is_degraded());
            faults.cut(Fault::Refused);
            let guard = tenure.lock("x").acquire().await.unwrap();
            assert_eq!(guard.fallback(), Some(Fallback::Process));
            assert_eq!(tenure.health().degraded, 1);
            assert!(tenure.lock("x").try_acquire().await.unwrap().is_none(), "exclusive here");
            guard.release().await.unwrap();
            assert_eq!(tenure.health().degraded, 0);
            faults.clear();
            assert!(!tenure.lock("x").acquire().await.unwrap().is_degraded());
        });
    });
    let fallbacks = seen.snapshot().into_vec().into_iter().find_map(|(key, _, _, value)| {
        (key.key().name() == "tenure_fallbacks_total").then_some(value)
    });
    assert_eq!(fallbacks, Some(DebugValue::Counter(2)));
}

/// R22: a task held the lock of the store when that could not be reached any more. Another task of the process got the lock of
/// the fallback at the same time.
#[tokio::test]
async fn the_fallback_excludes_tasks_that_hold_the_lock_of_the_store() {
    let engine = Faulty::new(MemoryEngine::new());
    let faults = engine.faults();
    let builder = Tenure::builder().fallback(Fallback::Process).patience(ms(20));
    let tenure = builder.engine(engine).unwrap();
    let held = tenure.lock("x").lease(LONG).acquire().await.unwrap();
    faults.cut(Fault::Refused);
    assert!(tenure.lock("x").try_acquire().await.unwrap().is_none());
    let error = tenure.lock("x").acquire_within(ms(100)).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert!(tenure.lock("y").try_acquire().await.unwrap().is_some(), "another lock");
    let lock = tenure.lock("x");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    pass(ms(100)).await;
    assert!(!waiting.is_finished());
    drop(held);
    assert!(waiting.await.unwrap().unwrap().is_degraded());
}

/// R22: a task held the mutex of the fallback when the store could be reached again. Another task of the same client then
/// acquired the store's own, and both held it.
#[tokio::test]
async fn the_store_excludes_tasks_that_hold_the_lock_of_the_fallback() {
    let engine = Faulty::new(MemoryEngine::new());
    let faults = engine.faults();
    let builder = Tenure::builder().fallback(Fallback::Process).patience(ms(20));
    let tenure = builder.engine(engine).unwrap();
    faults.cut(Fault::Refused);
    let held = tenure.lock("x").lease(LONG).acquire().await.unwrap();
    faults.clear();
    assert!(tenure.lock("x").try_acquire().await.unwrap().is_none());
    let error = tenure.lock("x").acquire_within(ms(100)).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert!(!tenure.lock("y").try_acquire().await.unwrap().unwrap().is_degraded(), "another lock");
    let lock = tenure.lock("x");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    pass(ms(100)).await;
    assert!(!waiting.is_finished());
    drop(held);
    assert!(!waiting.await.unwrap().unwrap().is_degraded());
}

/// R22: a handle of a lock of the fallback was reported as lost, because the store had never heard of it.
#[tokio::test]
async fn a_lock_of_the_fallback_cannot_be_detached() {
    let engine = Faulty::new(MemoryEngine::new());
    engine.faults().cut(Fault::Refused);
    let builder = Tenure::builder().fallback(Fallback::Process).patience(ms(20));
    let tenure = builder.engine(engine).unwrap();
    let all = tenure::acquire_all([tenure.lock("x"), tenure.lock("y")], Wait::forever()).await;
    assert!(all.unwrap().is_degraded());
    let error = tenure.lock("x").acquire().await.unwrap().detach().await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    assert!(error.to_string().contains("fallback"), "{error}");
    assert!(tenure.lock("x").try_acquire().await.unwrap().is_some(), "it is released");
}

/// R22: the caller chose to wait for the store. An acquire that waits is granted when the store returns; one that does not wait,
/// and one whose time is over, fail.
#[tokio::test]
async fn a_caller_may_wait_for_the_store() {
    let engine = Faulty::new(MemoryEngine::new());
    let faults = engine.faults();
    let builder = Tenure::builder().fallback(Fallback::Wait).patience(ms(20));
    let tenure = builder.engine(engine).unwrap();
    faults.cut(Fault::Refused);
    let error = tenure.lock("x").try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    let error = tenure.lock("x").acquire_within(ms(100)).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    let lock = tenure.lock("x");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    // Many times the client's own patience.
    pass(ms(200)).await;
    assert!(!waiting.is_finished());
    faults.clear();
    assert!(!waiting.await.unwrap().unwrap().is_degraded());
}

/// R22: the caller chose a lock of this machine as the fallback: clients of other processes are excluded, too. In a process of its
/// own, because the folder of `local:` is in the environment.
#[cfg(all(feature = "local", target_os = "linux"))]
#[test]
fn the_fallback_may_be_this_machine() {
    let state = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "faults::acquiring::clients_of_this_machine_exclude_each_other"]);
    let ended = child.arg("--ignored").env("XDG_STATE_HOME", state.path()).status().unwrap();
    assert!(ended.success());
    assert!(state.path().join("tenure").is_dir(), "the locks were there");
}

#[cfg(all(feature = "local", target_os = "linux"))]
#[tokio::test]
#[ignore = "run by `the_fallback_may_be_this_machine`"]
async fn clients_of_this_machine_exclude_each_other() {
    let client = || {
        let engine = Faulty::new(MemoryEngine::new());
        engine.faults().cut(Fault::Refused);
        let builder = Tenure::builder().fallback(Fallback::Machine).patience(ms(20));
        builder.engine(engine).unwrap()
    };
    let (one, other) = (client(), client());
    let guard = one.lock("x").acquire().await.unwrap();
    assert_eq!(guard.fallback(), Some(Fallback::Machine));
    assert!(other.lock("x").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(other.lock("x").try_acquire().await.unwrap().is_some());
}

/// R8, I6: the timeout holds also if the store does not answer; a possible grant is given back.
#[tokio::test]
async fn the_time_allowed_holds_without_an_answer() {
    for stage in [Stage::Request, Stage::Reply] {
        time_allowed_without_an_answer(stage).await;
    }
}

async fn time_allowed_without_an_answer(stage: Stage) {
    let (faulty, faults, healthy) = pair();
    faults.delay(Kind::Acquire, stage);
    let lock = faulty.lock("x");
    let acquire = lock.acquire_within(ms(50));
    let error = tokio::time::timeout(ms(2000), acquire).await.expect("in time").unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    faults.clear();
    assert!(faulty.flush(LONG).await);
    until_free(&healthy, "x").await;
}

/// R8: if the store answered "busy" before and is slow at the end, the outcome is a timeout, not unknown.
#[tokio::test]
async fn time_that_ends_during_a_later_attempt_is_over() {
    let (faulty, faults, healthy) = pair();
    let held = healthy.lock("x").acquire().await.unwrap();
    let slow_down = {
        let faults = faults.clone();
        move |_| {
            faults.delay(Kind::Acquire, Stage::Reply);
            ms(1)
        }
    };
    let wait = Wait::within(ms(50)).retry(Backoff::custom(slow_down));
    let error = faulty.lock("x").acquire_with(wait).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    drop(held);
    faults.clear();
    assert!(faulty.flush(LONG).await);
    until_free(&healthy, "x").await;
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
    let (faulty, faults, healthy) = pair();
    faults.polls.store(polls_per_answer, Ordering::SeqCst);
    let mut held = match situation {
        "free" => None,
        _ => Some(healthy.lock("x").acquire().await.unwrap()),
    };
    {
        let lock = faulty.lock("x");
        let mut acquire = pin!(lock.acquire());
        for round in 0..polls {
            if situation == "released midway" && round == polls / 2 {
                held = None;
            }
            if poll_once(acquire.as_mut()).await.is_ready() {
                break;
            }
        }
    }
    drop(held);
    assert!(faulty.flush(LONG).await, "{polls} polls, {situation}");
    until_free(&healthy, "x").await;
}
