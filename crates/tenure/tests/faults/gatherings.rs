//! Latches and barriers, in a store that loses what it is told.

use std::pin::pin;
use std::sync::atomic::Ordering;

use tenure::{Error, Owner};

use super::fixture::{LONG, poll_once, until_free, until_waiting};
use crate::common::{Fault, Kind, Stage, ms, pair, pass};

/// I5, R27: the same count is sent again, and is one.
#[tokio::test]
async fn a_count_whose_reply_is_lost_is_counted_once() {
    for fault in [Fault::ReplyLost, Fault::RequestLost, Fault::Refused] {
        let (troubled, weather, calm) = pair();
        let (latch, seen) = (troubled.latch("x", 3), calm.latch("x", 3));
        weather.once(Kind::Acquire, fault);
        latch.count_down().await.unwrap();
        assert!(troubled.flush(LONG).await);
        assert_eq!(seen.count().await.unwrap(), 2, "{fault:?}");
        weather.once(Kind::Acquire, fault);
        let owner = Owner::new();
        latch.count_down_as(owner).await.unwrap();
        latch.count_down_as(owner).await.unwrap();
        assert!(troubled.flush(LONG).await);
        assert_eq!(seen.count().await.unwrap(), 1, "{fault:?}");
    }
}

/// I6, R27: the caller was told that it does not know. The count may have opened the latch, and those who
/// waited have gone on: to take it back would close the latch behind them.
#[tokio::test]
async fn a_count_that_is_unknown_is_not_taken_back() {
    let (troubled, weather, calm) = pair();
    let seen = calm.latch("x", 1);
    weather.always(Kind::Acquire, Fault::ReplyLost);
    let error = troubled.latch("x", 1).count_down().await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    seen.wait_within(LONG).await.unwrap();
    weather.clear();
    assert!(troubled.flush(LONG).await);
    seen.wait_within(ms(200)).await.expect("an open latch stays open");
}

/// I8, R27: the same when the caller has left. What is counted stays counted, and nothing waits.
#[tokio::test]
async fn a_count_that_is_dropped_on_its_way_is_not_taken_back() {
    let (troubled, weather, calm) = pair();
    weather.hold_up(Kind::Acquire, Stage::Reply);
    let latch = troubled.latch("x", 1);
    let dropped = tokio::time::timeout(ms(30), latch.count_down()).await;
    assert!(dropped.is_err());
    let seen = calm.latch("x", 1);
    seen.wait_within(LONG).await.unwrap();
    weather.clear();
    assert!(troubled.flush(LONG).await);
    seen.wait_within(ms(200)).await.expect("an open latch stays open");
}

/// I7, R27: a waiter hears nothing, and asks; but not all the time.
#[tokio::test]
async fn who_waits_where_nobody_has_come_asks_seldom() {
    let (troubled, weather, calm) = pair();
    weather.is_deaf.store(true, Ordering::SeqCst);
    let (latch, barrier) = (troubled.latch("x", 1), troubled.barrier("y", 2));
    let latched = tokio::spawn(async move { latch.wait().await });
    let party = tokio::spawn(async move { barrier.wait().await });
    until_waiting(&calm, "x", 1).await;
    until_waiting(&calm, "y", 1).await;
    pass(ms(500)).await;
    let asked = weather.acquires.load(Ordering::SeqCst);
    assert!(asked <= 4, "two who wait have asked {asked} times within half a second");
    calm.latch("x", 1).count_down().await.unwrap();
    calm.barrier("y", 2).wait_within(LONG).await.unwrap();
    for waiter in [latched, party] {
        tokio::time::timeout(LONG, waiter).await.expect("it asks").unwrap().unwrap();
    }
}

/// I8, R27: polled k times and dropped, for every k: the party is not counted, unless the barrier
/// has opened, and nothing of it is left.
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
    let (troubled, weather, calm) = pair();
    weather.polls.store(polls_per_answer, Ordering::SeqCst);
    let parties = if situation == "not yet all" { 3 } else { 2 };
    let (here, there) = (troubled.barrier("x", parties), calm.barrier("x", parties));
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
    assert!(troubled.flush(LONG).await, "{polls} polls, {situation}");
    if is_through {
        assert_eq!(situation, "opened midway", "it opened for one alone");
        assert!(other_is_through || poll_once(other.as_mut()).await.is_ready(), "for both");
    }
    if situation == "not yet all" {
        until_waiting(&calm, "x", 1).await;
    }
    drop(other);
    until_free(&calm, "x").await;
}
