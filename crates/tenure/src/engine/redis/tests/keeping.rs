//! How long keys are kept, and what becomes of a lock whose keys are gone.

use tenure_testkit::Server;
use tenure_testkit::resp::Reply as Plain;

use super::answers::{acquire, cancel, permits, release, renewal, waiting};
use super::caller::Caller;
use super::*;

on_every_server!(
    a_lock_that_expired_is_free_and_its_fence_grows,
    a_lock_that_expired_midway_ends_where_it_was,
    whoever_still_waits_or_holds_keeps_every_key,
);

const HOUR: i64 = 3_600_000;

/// Lets every key of the server expire, and sees them gone.
fn let_expire(caller: &mut Caller) {
    for key in caller.state().into_keys() {
        caller.say(&["PEXPIRE", &key, "1"]);
        while caller.say(&["EXISTS", &key]) == Plain::Integer(1) {
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
    assert_eq!(caller.call(&[&renewal("x", first)]), ["0"], "not made again");
    assert_eq!(caller.call(&[&release("x", first)]), ["none"]);
    assert_eq!(caller.call(&[&cancel("x", second)]), ["0"]);
    assert!(caller.state().is_empty(), "asking for what is gone makes nothing");
    let new = fence(&caller.call(&[&acquire("x", third)])[0]);
    assert!(new > old, "{new} after {old}");
}

/// A holder and a waiter of a semaphore; everything is gone between two of their steps.
fn a_lock_that_expired_midway_ends_where_it_was(server: &Server) {
    let mut caller = Caller::new(server);
    let [first, second] = std::array::from_fn(|_| Owner::new());
    let ask = |owner| waiting(permits(acquire("x", owner), 2));
    for _ in 0..2 {
        fence(&caller.call(&[&ask(first)])[0]);
        assert!(caller.call(&[&ask(second)])[0].starts_with("2 0 "));
        let_expire(&mut caller);
        // The waiter asks again, and is the only one; the former holder waits behind it.
        fence(&caller.call(&[&ask(second)])[0]);
        assert!(caller.call(&[&ask(first)])[0].starts_with("2 0 "));
        assert_eq!(caller.call(&[&release("x", second)]), ["0"]);
        assert_eq!(caller.call(&[&release("x", first)]), ["0"], "handed over");
        assert_eq!(caller.call(&[&release("x", first)]), ["none"]);
    }
}

/// I7, I10: a wait or a hold has no end of its own, so no key of a lock may expire before another.
fn whoever_still_waits_or_holds_keeps_every_key(server: &Server) {
    let [first, second] = std::array::from_fn(|_| Owner::new());
    let mutex = |owner| waiting(acquire("x", owner));
    let semaphore = |owner| waiting(permits(acquire("x", owner), 2));
    for ask in [&mutex as &dyn Fn(Owner) -> AcquireRequest, &semaphore] {
        let mut caller = Caller::new(server);
        caller.call(&[&ask(first)]);
        caller.call(&[&ask(second)]);
        // A day later, so to speak: there is not much left of the time they were kept for.
        let keys: Vec<_> = caller.state().into_keys().collect();
        for key in &keys {
            caller.say(&["PEXPIRE", key, "60000"]);
        }
        assert_eq!(caller.call(&[&renewal("x", first)]), ["1"], "the watchdog");
        assert!(caller.call(&[&ask(second)])[0].starts_with("2 0 "), "the heartbeat");
        for key in &keys {
            let left = caller.say(&["PTTL", key]);
            assert!(matches!(left, Plain::Integer(left) if left >= HOUR), "{key}: {left:?}");
        }
    }
}
