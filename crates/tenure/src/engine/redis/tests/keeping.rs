//! How long keys are kept, and the state of a lock whose key has expired.

use tenure_testkit::Server;
use tenure_testkit::resp::Reply as Plain;

use super::answers::{acquire, cancel, name, permits, release, renewal, waiting};
use super::caller::Caller;
use super::*;
use crate::core::moment::Moment;

on_every_server!(
    a_lock_that_expired_is_free_and_its_fence_grows,
    a_lock_that_expired_midway_ends_where_it_was,
    a_waiter_or_holder_keeps_every_key,
    a_lock_in_steady_use_is_kept,
    waiting_or_inspecting_shortens_nothing,
    a_client_that_is_handed_the_lock_keeps_its_fence_for_its_own_retention,
    the_last_holder_decides_for_how_long_its_fence_is_kept,
);

/// Nearly the retention of these tests, in ms.
const KEPT: i64 = 55_000;

/// Makes every key of the server expire.
fn let_expire(caller: &mut Caller) {
    for key in caller.state().into_keys() {
        caller.command(&["PEXPIRE", &key, "1"]);
        while caller.command(&["EXISTS", &key]) == Plain::Integer(1) {
            std::thread::yield_now();
        }
    }
}

fn fence(line: &str) -> u64 {
    line.strip_prefix("1 ").unwrap().split(' ').next().unwrap().parse().unwrap()
}

/// I3, I4.
fn a_lock_that_expired_is_free_and_its_fence_grows(server: &Server) {
    let mut caller = Caller::new(server);
    let [first, second, third] = std::array::from_fn(|_| Owner::new());
    let old = fence(&caller.call(&[&acquire("x", first)])[0]);
    caller.call(&[&waiting(acquire("x", second))]);
    let_expire(&mut caller);
    caller.pass(Duration::from_millis(1));
    assert_eq!(caller.call(&[&renewal("x", first)]), ["0"], "not created again");
    assert_eq!(caller.call(&[&release("x", first)]), ["none"]);
    assert_eq!(caller.call(&[&cancel("x", second)]), ["0"]);
    assert!(caller.state().is_empty(), "operations on an expired lock create nothing");
    let new = fence(&caller.call(&[&acquire("x", third)])[0]);
    assert!(new > old, "{new} after {old}");
}

/// A holder and a waiter of a semaphore; all keys expire between two of their operations.
fn a_lock_that_expired_midway_ends_where_it_was(server: &Server) {
    let mut caller = Caller::new(server);
    let [first, second] = std::array::from_fn(|_| Owner::new());
    let request = |owner| waiting(permits(acquire("x", owner), 2));
    for _ in 0..2 {
        fence(&caller.call(&[&request(first)])[0]);
        assert!(caller.call(&[&request(second)])[0].starts_with("2 0 "));
        let_expire(&mut caller);
        // The waiter polls, and is granted the lock; the former holder waits behind it.
        fence(&caller.call(&[&request(second)])[0]);
        assert!(caller.call(&[&request(first)])[0].starts_with("2 0 "));
        assert_eq!(caller.call(&[&release("x", second)]), ["0"]);
        assert_eq!(caller.call(&[&release("x", first)]), ["0"], "handed over");
        assert_eq!(caller.call(&[&release("x", first)]), ["none"]);
    }
}

/// Uses a lock for a quarter of an hour. However soon its key was to expire, at least the
/// retention is left at the end.
fn must_be_kept(caller: &mut Caller, what: &str, mut make_use: impl FnMut(&mut Caller)) {
    make_use(caller);
    let keys: Vec<_> = caller.state().into_keys().collect();
    for key in &keys {
        caller.command(&["PEXPIRE", key, "30000"]);
    }
    let until = caller.now + Duration::from_secs(900);
    while caller.now < until {
        make_use(caller);
    }
    for key in &keys {
        let left = caller.command(&["PTTL", key]);
        assert!(matches!(left, Plain::Integer(KEPT..)), "{what}: {key} has {left:?} ms left");
    }
}

/// I7, I10: a wait or a hold has no fixed end, so its key must not expire meanwhile.
fn a_waiter_or_holder_keeps_every_key(server: &Server) {
    let [first, second] = std::array::from_fn(|_| Owner::new());
    let mutex = |owner| waiting(acquire("x", owner));
    let semaphore = |owner| waiting(permits(acquire("x", owner), 2));
    for request in [&mutex as &dyn Fn(Owner) -> AcquireRequest, &semaphore] {
        let mut caller = Caller::new(server);
        caller.call(&[&request(first)]);
        caller.call(&[&request(second)]);
        must_be_kept(&mut caller, "watchdog and heartbeat", |caller| {
            assert_eq!(caller.call(&[&renewal("x", first)]), ["1"], "the watchdog");
            assert!(caller.call(&[&request(second)])[0].starts_with("2 0 "), "the heartbeat");
            caller.pass(Duration::from_secs(5));
        });
    }
}

/// Also when the clock was set back and the fence runs ahead.
fn a_lock_in_steady_use_is_kept(server: &Server) {
    let mut caller = Caller::new(server);
    let owner = Owner::new();
    let use_shortly = |caller: &mut Caller, step| {
        caller.call(&[&acquire("x", owner)]);
        caller.call(&[&release("x", owner)]);
        caller.pass(Duration::from_secs(step));
    };
    must_be_kept(&mut caller, "often", |caller| use_shortly(caller, 20));
    must_be_kept(&mut caller, "seldom", |caller| use_shortly(caller, 540));
    caller.now = Moment::from_micros(caller.now.as_micros() - 7_200_000_000);
    must_be_kept(&mut caller, "by a clock set back", |caller| use_shortly(caller, 20));
    caller.call(&[&acquire("x", owner)]);
    must_be_kept(&mut caller, "held", |caller| {
        caller.pass(Duration::from_secs(5));
        assert_eq!(caller.call(&[&renewal("x", owner)]), ["1"]);
    });
}

/// A day, and a second, in ms.
const RETENTIONS: [u64; 2] = [86_400_000, 1_000];

/// Switches to the client that keeps fences for a day, or to one that keeps them for a second. Only the first is
/// subscribed.
fn be(caller: &mut Caller, careful: bool) {
    let own = caller.client.trim_end_matches('-').to_owned();
    caller.client = if careful { own } else { own + "-" };
    caller.retention = RETENTIONS[usize::from(!careful)];
}

fn must_be_kept_for_a_day(caller: &mut Caller, what: &str) {
    let left = caller.command(&["PTTL", &keys::lock_key(&name("x"))]);
    // With a margin for a stall of the machine.
    assert!(matches!(left, Plain::Integer(86_390_000..)), "{what}: {left:?} ms left");
}

fn inspect(caller: &mut Caller) {
    caller.run(&scripts::INSPECT, &[&name("x")], |command| {
        ["9", "9"].iter().for_each(|most| command.push(most));
    });
}

/// A list, or a client that waited and gave up, cut a fence that was to be kept for a day to half a minute. I4.
fn waiting_or_inspecting_shortens_nothing(server: &Server) {
    let mutex = |owner| waiting(acquire("x", owner));
    let semaphore = |owner| waiting(permits(acquire("x", owner), 3));
    for request in [&mutex as &dyn Fn(Owner) -> AcquireRequest, &semaphore] {
        let mut caller = Caller::new(server);
        let [holder, waiter] = std::array::from_fn(|_| Owner::new());
        be(&mut caller, true);
        fence(&caller.call(&[&request(holder)])[0]);
        be(&mut caller, false);
        assert!(caller.call(&[&request(waiter)])[0].starts_with("2 0 "));
        must_be_kept_for_a_day(&mut caller, "another client waits");
        caller.call(&[&cancel("x", waiter)]);
        must_be_kept_for_a_day(&mut caller, "it has cancelled");
        be(&mut caller, true);
        assert_eq!(caller.call(&[&release("x", holder)]), ["0"]);
        must_be_kept_for_a_day(&mut caller, "released");

        fence(&caller.call(&[&request(holder)])[0]);
        caller.pass(Duration::from_secs(31));
        be(&mut caller, false);
        inspect(&mut caller);
        must_be_kept_for_a_day(&mut caller, "its lease has ended, and another client inspects");
        be(&mut caller, true);
        fence(&caller.call(&[&request(holder)])[0]);
        caller.now = caller.now.before(Duration::from_secs(900));
        be(&mut caller, false);
        inspect(&mut caller);
        must_be_kept_for_a_day(&mut caller, "the clock was set back, and another client inspects");
    }
}

/// The holder before it keeps fences for a second. I4.
fn a_client_that_is_handed_the_lock_keeps_its_fence_for_its_own_retention(server: &Server) {
    for crashes in [false, true] {
        let mut caller = Caller::new(server);
        let [holder, next] = std::array::from_fn(|_| Owner::new());
        be(&mut caller, false);
        caller.call(&[&acquire("x", holder)]);
        be(&mut caller, true);
        assert!(caller.call(&[&waiting(acquire("x", next))])[0].starts_with("2 0 "));
        be(&mut caller, false);
        caller.pass(Duration::from_millis(1));
        assert_eq!(caller.call(&[&release("x", holder)]), ["0"]);
        if crashes {
            caller.pass(Duration::from_secs(31));
            inspect(&mut caller);
        } else {
            be(&mut caller, true);
            assert_eq!(caller.call(&[&release("x", next)]), ["0"]);
        }
        must_be_kept_for_a_day(&mut caller, if crashes { "crashed" } else { "released" });
    }
}

/// Its fence is the larger one.
fn the_last_holder_decides_for_how_long_its_fence_is_kept(server: &Server) {
    let mut caller = Caller::new(server);
    for careful in [true, false] {
        be(&mut caller, careful);
        caller.pass(Duration::from_millis(1));
        let owner = Owner::new();
        fence(&caller.call(&[&waiting(permits(acquire("x", owner), 1))])[0]);
        assert_eq!(caller.call(&[&release("x", owner)]), ["0"]);
    }
    let left = caller.command(&["PTTL", &keys::lock_key(&name("x"))]);
    assert!(matches!(left, Plain::Integer(..=1_000)), "{left:?} ms left");
}
