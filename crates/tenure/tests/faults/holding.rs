//! Holders whose renewals and releases are lost.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure::{Error, Released, WhyLost};

use super::fixture::{LONG, poll_once, until_free};
use crate::common::{Fault, Faults, Kind, Stage, ms, pair, pass};

/// A lost renewal leaves the old deadline; the next one keeps the lock.
#[tokio::test]
async fn a_lock_survives_renewals_that_fail_for_a_while() {
    let (faulty, faults, _) = pair();
    let guard = faulty.lock("x").lease(ms(600)).acquire().await.unwrap();
    for fault in [Fault::Refused, Fault::RequestLost, Fault::ReplyLost] {
        faults.once(Kind::Renew, fault);
    }
    while faults.renewals.load(Ordering::SeqCst) < 6 {
        pass(ms(10)).await;
        assert!(!guard.is_lost());
    }
    assert_eq!(guard.release().await.unwrap(), Released::Now);
}

/// I9: a holder without a connection is notified before the store grants the lock to another.
#[tokio::test]
async fn a_holder_that_is_cut_off_is_notified_in_time() {
    let (faulty, faults, healthy) = pair();
    // The margin is a share of the lease, and must be longer than a busy machine takes to schedule a thread.
    let guard = faulty.lock("x").lease(ms(8000)).acquire().await.unwrap();
    faults.cut(Fault::RequestLost);
    assert_eq!(guard.lost().await.why(), WhyLost::LeaseEnded);
    assert!(!healthy.lock("x").inspect().await.unwrap().is_free(), "reported too late");
    let next = healthy.lock("x").acquire_within(LONG).await.unwrap();
    faults.clear();
    drop(guard);
    assert!(faulty.flush(LONG).await);
    assert_eq!(healthy.lock("x").inspect().await.unwrap().holders[0].owner, next.owner(), "I3");
}

/// R31: "not held" is success for a release that was sent twice.
#[tokio::test]
async fn a_release_whose_reply_is_lost_goes_on_in_the_background() {
    let (faulty, faults, healthy) = pair();
    for fault in [Fault::ReplyLost, Fault::RequestLost] {
        let guard = faulty.lock("x").acquire().await.unwrap();
        faults.once(Kind::Release, fault);
        let error = guard.release().await.unwrap_err();
        assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
        until_free(&healthy, "x").await;
    }
    let guard = faulty.lock("x").acquire().await.unwrap();
    faults.once(Kind::Release, Fault::RequestLost);
    drop(guard);
    until_free(&healthy, "x").await;
}

/// I6: a refusal has no effect, so the release is retried, and its final outcome is the true one.
#[tokio::test]
async fn a_refused_release_is_tried_again() {
    let (faulty, faults, healthy) = pair();
    let guard = faulty.lock("x").acquire().await.unwrap();
    faults.once(Kind::Release, Fault::Refused);
    assert_eq!(guard.release().await.unwrap(), Released::Now);
    assert!(healthy.lock("x").inspect().await.unwrap().is_free());
}

/// I6: a release that is refused until the lease has ended: the lock was held while its holder used it, so
/// the error is that it was not released, and not that it was lost.
#[tokio::test]
async fn a_release_that_is_refused_to_the_end_of_the_lease_is_no_loss() {
    let (faulty, faults, healthy) = pair();
    let guard = faulty.lock("x").lease(ms(500)).acquire().await.unwrap();
    faults.always(Kind::Release, Fault::Refused);
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    faults.clear();
    until_free(&healthy, "x").await;
}

/// I8: the release of a lock whose store always refuses, as for a record that cannot be read, is not retried
/// forever: the lease has ended long before.
#[tokio::test]
async fn a_release_in_the_background_ends_with_the_lease() {
    let (faulty, faults, healthy) = pair();
    let guard = faulty.lock("x").lease(ms(300)).acquire().await.unwrap();
    faults.always(Kind::Release, Fault::Refused);
    drop(guard);
    assert!(faulty.flush(LONG).await, "it does not end");
    until_free(&healthy, "x").await;
}

/// I8: a release that is dropped continues, for every k.
#[tokio::test]
async fn a_release_dropped_at_any_await_still_releases() {
    for polls in 0..8 {
        let (faulty, faults, healthy) = pair();
        faults.polls.store(4, Ordering::SeqCst);
        let guard = faulty.lock("x").acquire().await.unwrap();
        {
            let mut release = pin!(guard.release());
            for _ in 0..polls {
                if poll_once(release.as_mut()).await.is_ready() {
                    break;
                }
            }
        }
        until_free(&healthy, "x").await;
    }
}

/// I6, I8: everything at once. Whatever is lost, no second holder is granted, and in the end nothing is
/// left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_leaks_in_a_storm() {
    let (faulty, faults, healthy) = pair();
    faults.polls.store(2, Ordering::SeqCst);
    let inside = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..12u64)
        .map(|task| {
            let client = if task % 3 == 0 { healthy.clone() } else { faulty.clone() };
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
        let faults = faults.clone();
        async move {
            let kinds = [Kind::Acquire, Kind::Release, Kind::Cancel, Kind::Renew];
            let losses = [Fault::ReplyLost, Fault::RequestLost, Fault::Refused];
            for round in 0.. {
                faults.once(kinds[round % 4], losses[round % 3]);
                faults.loses_wakeups.store(round % 5 == 0, Ordering::SeqCst);
                pass(ms(1)).await;
            }
        }
    });
    for task in tasks {
        task.await.unwrap();
    }
    storm.abort();
    faults.clear();
    assert!(faulty.flush(LONG).await);
    until_free(&healthy, "x").await;
}

/// I6, R27: the guard is a reader's at once, and others may read as soon as the store has the downgrade.
#[tokio::test]
async fn a_downgrade_whose_reply_is_lost_goes_on_in_the_background() {
    for fault in [Fault::ReplyLost, Fault::RequestLost, Fault::Refused] {
        let (faulty, faults, healthy) = pair();
        let other = healthy.rwlock("x");
        let writing = faulty.rwlock("x").write().await.unwrap();
        faults.once(Kind::Release, fault);
        let reading = writing.downgrade().await;
        let beside = other.read_within(LONG).await.unwrap();
        reading.ensure_held().unwrap();
        assert!(other.try_write().await.unwrap().is_none(), "I1: both read");
        drop(beside);
        assert_eq!(reading.release().await.unwrap(), Released::Now, "{fault:?}");
        drop(other.write_within(LONG).await.unwrap());
    }
}

/// I5, I8, R27: released before the downgrade has reached the store; the late request has no effect.
#[tokio::test]
async fn a_downgrade_overtaken_by_its_release_is_over() {
    let (faulty, faults, healthy) = pair();
    let writing = faulty.rwlock("x").write().await.unwrap();
    for _ in 0..3 {
        faults.once(Kind::Release, Fault::RequestLost);
    }
    drop(writing.downgrade().await);
    let next = healthy.rwlock("x").write_within(LONG).await.unwrap();
    assert!(faulty.flush(LONG).await);
    assert!(healthy.rwlock("x").try_read().await.unwrap().is_none(), "the next one writes");
    next.release().await.unwrap();
    until_free(&healthy, "x").await;
}

async fn until_held_up(faults: &Faults) {
    while faults.waiting.load(Ordering::SeqCst) == 0 {
        pass(ms(1)).await;
    }
}

/// I9: the answer was slow, and little is left of the lease. It is renewed in time, in a store without
/// faults.
#[tokio::test]
async fn a_grant_with_little_left_is_renewed_in_time() {
    let (faulty, faults, _) = pair();
    faults.delay(Kind::Acquire, Stage::Reply);
    let lock = faulty.lock("x").lease(ms(6000));
    let acquire = tokio::spawn(async move { lock.acquire().await });
    until_held_up(&faults).await;
    pass(ms(4300)).await;
    faults.clear();
    let guard = acquire.await.unwrap().unwrap();
    let left = guard.remaining();
    assert!(left < ms(2000), "less than a third is left");
    pass(left + ms(500)).await;
    guard.ensure_held().expect("it is renewed");
    assert_eq!(guard.release().await.unwrap(), Released::Now);
}

/// I9: a lock is taken away while its grant is in flight to the holder. The message arrives first, and is
/// not forgotten.
#[tokio::test]
async fn a_loss_reported_before_its_hold_exists_is_not_missed() {
    let (faulty, faults, healthy) = pair();
    faults.delay(Kind::Acquire, Stage::Reply);
    let locks = [faulty.lock("x"), faulty.lock("x").fixed_lease(LONG * 3)];
    for lock in locks {
        faults.delay(Kind::Acquire, Stage::Reply);
        let acquire = tokio::spawn(async move { lock.acquire().await });
        until_held_up(&faults).await;
        healthy.lock("x").force_release("a test").await.unwrap();
        faults.clear();
        let guard = acquire.await.unwrap().unwrap();
        let lost =
            tokio::time::timeout(ms(5000), guard.lost()).await.expect("it is reported at once");
        assert_eq!(lost.why(), WhyLost::NotHeld);
    }
}
