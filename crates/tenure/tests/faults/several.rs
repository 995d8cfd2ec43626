//! Several locks at once, in stores that lose requests and answers.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use tenure::{Error, Guards, Released, Tenure, Wait, acquire_all};

use super::fixture::{LONG, poll_once, until_free};
use crate::common::{Fault, Faults, Kind, ms, pair, pass};

async fn all_of(tenure: &Tenure) -> Result<Guards, Error> {
    acquire_all(["x", "y", "z"].map(|name| tenure.lock(name)), Wait::within(LONG)).await
}

/// I5, I6, R27: one of the answers or requests is lost. All locks are acquired nevertheless, each once.
#[tokio::test]
async fn several_locks_are_had_though_one_answer_is_lost() {
    for fault in [Fault::ReplyLost, Fault::RequestLost, Fault::Refused] {
        for place in 0..3 {
            let (faulty, faults, healthy) = pair();
            for _ in 0..place {
                faults.once(Kind::Acquire, Fault::None);
            }
            faults.once(Kind::Acquire, fault);
            let guards = all_of(&faulty).await.unwrap();
            assert!(faulty.flush(LONG).await);
            guards.ensure_held().unwrap();
            for guard in guards.iter() {
                let info = healthy.lock(guard.name().as_str()).inspect().await.unwrap();
                let holder = &info.holders[0];
                assert_eq!((holder.owner, holder.entries), (guard.owner(), 1), "{fault:?} {place}");
                assert_eq!(info.waiting, 0, "{fault:?} {place}");
            }
            assert_eq!(guards.release().await.unwrap(), Released::Now);
            free_everywhere(&[(&faulty, &healthy)]).await;
        }
    }
}

/// I6, I8, R27: a store without answers is given up, and the other locks are released.
#[tokio::test]
async fn several_locks_are_given_up_together() {
    let (faulty, faults, healthy) = pair();
    for _ in 0..2 {
        faults.once(Kind::Acquire, Fault::None);
    }
    faults.always(Kind::Acquire, Fault::ReplyLost);
    let error = all_of(&faulty).await.unwrap_err();
    assert!(matches!(&error, Error::Unknown { .. }), "{error:?}");
    assert!(error.to_string().contains("`z`"), "{error}");
    faults.clear();
    free_everywhere(&[(&faulty, &healthy)]).await;
}

/// I9, R27: a fixed lease that ended during the wait for another lock is an error, and all locks are released.
#[tokio::test]
async fn a_lease_that_ended_meanwhile_is_reported() {
    let (tenure, _, healthy) = pair();
    let held = healthy.lock("y").acquire().await.unwrap();
    let locks = [tenure.lock("x").fixed_lease(ms(200)), tenure.lock("y")];
    let (acquired, ()) = tokio::join!(acquire_all(locks, Wait::within(LONG)), async {
        until_taken(&healthy, "x").await;
        until_free(&healthy, "x").await;
        drop(held);
    });
    match acquired.unwrap_err() {
        Error::Lost(lost) => assert_eq!(lost.name().as_str(), "x"),
        other => panic!("{other:?}"),
    }
    free_everywhere(&[(&tenure, &healthy)]).await;
}

async fn until_taken(tenure: &Tenure, name: &str) {
    while tenure.lock(name).inspect().await.unwrap().is_free() {
        pass(ms(1)).await;
    }
}

/// I8, R27: polled k times and dropped, for every k, on two stores whose answers take several
/// polls; with all locks free, one held, and one handed over in the middle of it.
#[tokio::test]
async fn several_locks_dropped_at_any_await_leave_nothing() {
    for polls_per_answer in [0, 1, 4] {
        for polls in 0..24 {
            for situation in ["free", "held", "released midway"] {
                drop_after(polls_per_answer, polls, situation).await;
            }
        }
    }
}

async fn drop_after(polls_per_answer: usize, polls: usize, situation: &str) {
    let stores: [(Tenure, Arc<Faults>, Tenure); 2] = [pair(), pair()];
    for (_, faults, _) in &stores {
        faults.polls.store(polls_per_answer, Ordering::SeqCst);
    }
    let [(here, _, healthy), (there, _, calm_there)] = &stores;
    let mut held = match situation {
        "free" => None,
        _ => Some(healthy.lock("y").acquire().await.unwrap()),
    };
    {
        let locks = [there.lock("z"), here.lock("y"), there.lock("x"), here.lock("z")];
        let mut acquire = pin!(acquire_all(locks, Wait::forever()));
        for round in 0..polls {
            if situation == "released midway" && round == polls / 2 {
                held = None;
            }
            if let Poll::Ready(acquired) = poll_once(acquire.as_mut()).await {
                assert!(held.is_none() && acquired.is_ok(), "{polls} polls, {situation}");
                break;
            }
        }
    }
    drop(held);
    free_everywhere(&[(here, healthy), (there, calm_there)]).await;
}

async fn free_everywhere(stores: &[(&Tenure, &Tenure)]) {
    for (faulty, healthy) in stores {
        assert!(faulty.flush(LONG).await);
        for name in ["x", "y", "z"] {
            until_free(healthy, name).await;
        }
    }
}

/// I8, R27: a release of several that is dropped continues, for every k.
#[tokio::test]
async fn a_release_of_several_dropped_at_any_await_still_releases() {
    for polls in 0..8 {
        let (faulty, faults, healthy) = pair();
        faults.polls.store(4, Ordering::SeqCst);
        let guards = all_of(&faulty).await.unwrap();
        {
            let mut release = pin!(guards.release());
            for _ in 0..polls {
                if poll_once(release.as_mut()).await.is_ready() {
                    break;
                }
            }
        }
        free_everywhere(&[(&faulty, &healthy)]).await;
    }
    let (faulty, faults, healthy) = pair();
    let guards = all_of(&faulty).await.unwrap();
    faults.once(Kind::Release, Fault::ReplyLost);
    let error = guards.release().await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    free_everywhere(&[(&faulty, &healthy)]).await;
    assert!(healthy.lock("x").acquire_within(ms(100)).await.is_ok());
}
