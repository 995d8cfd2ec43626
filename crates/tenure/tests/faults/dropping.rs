//! Every public future, dropped at any await (I8).
//!
//! A use is a whole sequence of calls. It is polled k times and dropped, for every k until it completes: so each of its futures is
//! dropped at each of its awaits.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;

use tenure::{Owner, Released, Tenure, Wait};

use super::fixture::{LONG, poll_once, until, until_free};
use crate::common::{ms, pair, pass};

type Sequence = Pin<Box<dyn Future<Output = ()>>>;

/// No sequence needs as many polls.
const POLLS: usize = 300;

/// What a sequence may leave when it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// Nothing, as soon as the client has no work in the background.
    Nothing,
    /// A detached lock, whose handle was dropped, until its lease has ended.
    Lease,
    /// A count, as documented. Never a waiter.
    Count,
}

async fn drop_at_any_await(rest: Rest, sequence: impl Fn(Tenure) -> Sequence) {
    for polls_per_answer in [0, 1, 3] {
        let mut has_completed = false;
        for polls in 0..POLLS {
            has_completed = drop_after(polls_per_answer, polls, rest, &sequence).await;
            if has_completed {
                break;
            }
        }
        assert!(has_completed, "it needs more than {POLLS} polls");
    }
}

async fn drop_after(
    polls_per_answer: usize,
    polls: usize,
    rest: Rest,
    sequence: &impl Fn(Tenure) -> Sequence,
) -> bool {
    let (client, faults, healthy) = pair();
    faults.polls.store(polls_per_answer, Ordering::SeqCst);
    let mut is_over = false;
    {
        let mut running = pin!(sequence(client.clone()));
        for round in 0..polls {
            is_over = poll_once(running.as_mut()).await.is_ready();
            if is_over {
                break;
            }
            // What it waits for now comes from a thread.
            if round > POLLS / 2 {
                pass(ms(1)).await;
            }
        }
    }
    assert!(client.flush(LONG).await, "{polls} polls: the background does not end");
    match rest {
        Rest::Lease => until_free(&healthy, "x").await,
        Rest::Count => until(&healthy, "x", |info| info.waiting == 0).await,
        Rest::Nothing => {
            let left = healthy.lock("x").inspect().await.unwrap();
            assert!(left.is_free() && left.waiting == 0, "{polls} polls leave {left:?}");
        }
    }
    is_over
}

#[tokio::test]
async fn a_mutex_may_be_dropped_at_any_await() {
    drop_at_any_await(Rest::Nothing, |tenure| {
        Box::pin(async move {
            let guard = tenure.lock("x").try_acquire().await.unwrap().unwrap();
            guard.renew().await.unwrap();
            guard.confirm().await.unwrap();
            guard.protect(async { tenure.lock("x").inspect().await }).await.unwrap().unwrap();
            assert_eq!(guard.release().await.unwrap(), Released::Now);
            let attempts = Wait::attempts(2).retry(tenure::Backoff::fixed(ms(1)));
            drop(tenure.lock("x").acquire_with(attempts).await.unwrap());
        })
    })
    .await;
}

#[tokio::test]
async fn an_owner_that_enters_again_may_be_dropped_at_any_await() {
    drop_at_any_await(Rest::Nothing, |tenure| {
        Box::pin(async move {
            let lock = tenure.lock("x").owner(Owner::new());
            let (first, second) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
            first.release().await.unwrap();
            second.confirm().await.unwrap();
            let third = lock.count_locally().acquire_within(LONG).await.unwrap();
            second.release().await.unwrap();
            third.release().await.unwrap();
        })
    })
    .await;
}

#[tokio::test]
async fn readers_and_writers_may_be_dropped_at_any_await() {
    drop_at_any_await(Rest::Nothing, |tenure| {
        Box::pin(async move {
            let state = tenure.rwlock("x");
            let (one, other) = (state.read().await.unwrap(), state.try_read().await.unwrap());
            one.release().await.unwrap();
            drop(other);
            let writer = state.write_within(LONG).await.unwrap();
            let reader = writer.downgrade().await;
            assert!(state.try_write().await.unwrap().is_none());
            reader.release().await.unwrap();
            state.write().await.unwrap().release().await.unwrap();
        })
    })
    .await;
}

#[tokio::test]
async fn permits_may_be_dropped_at_any_await() {
    drop_at_any_await(Rest::Nothing, |tenure| {
        Box::pin(async move {
            let permits = tenure.semaphore("x", 3);
            let two = permits.acquire_many(2).await.unwrap();
            let one = permits.try_acquire().await.unwrap().unwrap();
            assert_eq!(permits.available().await.unwrap(), 0);
            two.release().await.unwrap();
            tenure.semaphore("x", 2).apply_limit().await.unwrap();
            one.release().await.unwrap();
        })
    })
    .await;
}

#[tokio::test]
async fn a_candidate_may_be_dropped_at_any_await() {
    drop_at_any_await(Rest::Nothing, |tenure| {
        Box::pin(async move {
            let election = tenure.election("x");
            let leadership = election.campaign().await.unwrap();
            assert!(election.try_campaign().await.unwrap().is_none());
            assert!(election.leader().await.unwrap().is_some());
            assert_eq!(election.participants().await.unwrap().len(), 1);
            assert!(election.changes().next().await.unwrap().is_some());
            leadership.protect(std::future::ready(())).await.unwrap();
            leadership.resign().await.unwrap();
        })
    })
    .await;
}

/// A handle that is dropped cannot be used any more: its lock ends with its lease, and no later.
#[tokio::test]
async fn a_handle_may_be_dropped_at_any_await() {
    drop_at_any_await(Rest::Lease, |tenure| {
        Box::pin(async move {
            let lock = tenure.lock("x").lease(ms(150));
            let handle = lock.acquire().await.unwrap().detach().await.unwrap();
            tenure.renew(&handle).await.unwrap();
            tenure.renew_for(&handle, ms(160)).await.unwrap();
            let guard = tenure.adopt(handle).await.unwrap();
            let handle = guard.detach().await.unwrap();
            assert_eq!(tenure.release(&handle).await.unwrap(), Released::Now);
        })
    })
    .await;
}

#[tokio::test]
async fn a_forced_release_may_be_dropped_at_any_await() {
    drop_at_any_await(Rest::Nothing, |tenure| {
        Box::pin(async move {
            let guard = tenure.lock("x").acquire().await.unwrap();
            tenure.lock("x").force_release("a test").await.unwrap();
            guard.lost().await;
            assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost);
            tenure.list("", 10).await.unwrap();
        })
    })
    .await;
}

/// A count that is dropped may have been counted or not. A waiter leaves nothing.
#[tokio::test]
async fn a_latch_may_be_dropped_at_any_await() {
    drop_at_any_await(Rest::Count, |tenure| {
        Box::pin(async move {
            let latch = tenure.latch("x", 2);
            latch.set_count().await.unwrap();
            latch.count_down().await.unwrap();
            assert!(latch.wait_within(ms(1)).await.is_err());
            latch.count_down_as(Owner::new()).await.unwrap();
            assert_eq!(latch.count().await.unwrap(), 0);
            latch.wait().await.unwrap();
        })
    })
    .await;
}
