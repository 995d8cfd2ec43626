//! Latches and barriers, in a store that loses requests.

use std::pin::pin;
use std::sync::atomic::Ordering;

use tenure::{Error, Owner};

use super::fixture::{LONG, poll_once, until_free, until_waiting};
use crate::common::{Fault, Kind, Stage, ms, pair, pass};

/// I5, R27: a count that is sent again counts once.
#[tokio::test]
async fn a_count_whose_reply_is_lost_is_counted_once() {
    for fault in [Fault::ReplyLost, Fault::RequestLost, Fault::Refused] {
        let (faulty, faults, healthy) = pair();
        let (latch, seen) = (faulty.latch("x", 3), healthy.latch("x", 3));
        faults.once(Kind::Acquire, fault);
        latch.count_down().await.unwrap();
        assert!(faulty.flush(LONG).await);
        assert_eq!(seen.count().await.unwrap(), 2, "{fault:?}");
        faults.once(Kind::Acquire, fault);
        let owner = Owner::new();
        latch.count_down_as(owner).await.unwrap();
        latch.count_down_as(owner).await.unwrap();
        assert!(faulty.flush(LONG).await);
        assert_eq!(seen.count().await.unwrap(), 1, "{fault:?}");
    }
}

/// I6, R27: the outcome is reported as unknown. The count may have opened the latch, and its waiters have
/// continued: undoing it would close the latch behind them.
#[tokio::test]
async fn a_count_that_is_unknown_is_not_taken_back() {
    let (faulty, faults, healthy) = pair();
    let seen = healthy.latch("x", 1);
    faults.always(Kind::Acquire, Fault::ReplyLost);
    let error = faulty.latch("x", 1).count_down().await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    seen.wait_within(LONG).await.unwrap();
    faults.clear();
    assert!(faulty.flush(LONG).await);
    seen.wait_within(ms(200)).await.expect("an open latch stays open");
}

/// I8, R27: the same if the caller's future was dropped. A count stays, and nothing waits.
#[tokio::test]
async fn a_count_that_is_dropped_on_its_way_is_not_taken_back() {
    let (faulty, faults, healthy) = pair();
    faults.delay(Kind::Acquire, Stage::Reply);
    let latch = faulty.latch("x", 1);
    let dropped = tokio::time::timeout(ms(30), latch.count_down()).await;
    assert!(dropped.is_err());
    let seen = healthy.latch("x", 1);
    seen.wait_within(LONG).await.unwrap();
    faults.clear();
    assert!(faulty.flush(LONG).await);
    seen.wait_within(ms(200)).await.expect("an open latch stays open");
}

/// I7, R27: a waiter without a wake-up asks again, but not all the time.
#[tokio::test]
async fn a_waiter_of_an_unused_latch_asks_rarely() {
    let (faulty, faults, healthy) = pair();
    faults.loses_wakeups.store(true, Ordering::SeqCst);
    let (latch, barrier) = (faulty.latch("x", 1), faulty.barrier("y", 2));
    let latched = tokio::spawn(async move { latch.wait().await });
    let party = tokio::spawn(async move { barrier.wait().await });
    until_waiting(&healthy, "x", 1).await;
    until_waiting(&healthy, "y", 1).await;
    pass(ms(500)).await;
    let asked = faults.acquires.load(Ordering::SeqCst);
    assert!(asked <= 4, "two who wait have asked {asked} times within half a second");
    healthy.latch("x", 1).count_down().await.unwrap();
    healthy.barrier("y", 2).wait_within(LONG).await.unwrap();
    for waiter in [latched, party] {
        tokio::time::timeout(LONG, waiter).await.expect("it asks").unwrap().unwrap();
    }
}

/// I8, R27: polled k times and dropped, for every k: the party is not counted, unless the barrier
/// has opened, and leaves nothing behind.
#[tokio::test]
async fn a_party_dropped_at_any_await_leaves_nothing() {
    for polls_per_answer in [0, 1, 4] {
        for polls in 0..16 {
            for situation in ["alone", "not yet all", "opened midway"] {
                drop_party_after(polls_per_answer, polls, situation).await;
            }
        }
    }
}

async fn drop_party_after(polls_per_answer: usize, polls: usize, situation: &str) {
    let (faulty, faults, healthy) = pair();
    faults.polls.store(polls_per_answer, Ordering::SeqCst);
    let parties = if situation == "not yet all" { 3 } else { 2 };
    let (here, there) = (faulty.barrier("x", parties), healthy.barrier("x", parties));
    let mut other = Box::pin(there.wait());
    if situation == "not yet all" {
        assert!(poll_once(other.as_mut()).await.is_pending());
    }
    let (mut is_through, mut other_is_through) = (false, false);
    {
        let mut party = pin!(here.wait());
        for round in 0..polls {
            if situation == "opened midway" && round == polls / 2 {
                other_is_through = poll_once(other.as_mut()).await.is_ready();
            }
            is_through = poll_once(party.as_mut()).await.is_ready();
            if is_through {
                break;
            }
        }
    }
    assert!(faulty.flush(LONG).await, "{polls} polls, {situation}");
    if is_through {
        assert_eq!(situation, "opened midway", "it opened for one alone");
        assert!(other_is_through || poll_once(other.as_mut()).await.is_ready(), "for both");
    }
    if situation == "not yet all" {
        until_waiting(&healthy, "x", 1).await;
    }
    drop(other);
    until_free(&healthy, "x").await;
}
