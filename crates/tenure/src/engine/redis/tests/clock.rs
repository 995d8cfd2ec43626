//! Steps of the server's clock, forward and back.

use tenure_testkit::Server;
use tenure_testkit::resp::Reply as Plain;

use super::answers::{acquire, name, permits, release, renewal, waiting};
use super::caller::{Caller, RETENTION, common};
use super::*;
use crate::core::moment::Moment;

on_every_server!(
    a_clock_set_back_keeps_a_crashed_holder_for_one_lease_at_most,
    a_clock_set_back_takes_nothing_from_a_holder_that_lives,
    a_dead_waiter_is_passed_over_though_the_clock_was_set_back,
    a_fence_ahead_of_the_clock_is_kept_until_the_clock_has_caught_up,
    a_lock_idle_beyond_the_retention_forgets_its_fence_and_a_clock_set_back_then_gives_a_smaller_one,
    a_renewal_returns_the_time,
);

const LEASE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

fn set_back(caller: &mut Caller, by: Duration) {
    caller.now = caller.now.before(by);
}

fn is_granted(line: &str) -> bool {
    line.starts_with("1 ")
}

/// A mutex, and a semaphore with one holder of all permits.
fn kinds() -> [fn(Owner) -> AcquireRequest; 2] {
    [|owner| acquire("x", owner), |owner| permits(acquire("x", owner), 3)]
}

/// The holder has crashed, and the clock is set back by an hour: the lock used to stay held for
/// 3,630 s. A2, I7.
fn a_clock_set_back_keeps_a_crashed_holder_for_one_lease_at_most(server: &Server) {
    for request in kinds() {
        let mut caller = Caller::new(server);
        let [crashed, next] = std::array::from_fn(|_| Owner::new());
        assert!(is_granted(&caller.call(&[&request(crashed)])[0]));
        caller.pass(LEASE / 3);
        set_back(&mut caller, HOUR);
        assert_eq!(caller.call(&[&request(next)]), ["3"], "its lease has not ended (I1)");
        caller.pass(LEASE - Duration::from_millis(1));
        assert_eq!(
            caller.call(&[&request(next)]),
            ["3"],
            "it may have been renewed at the step (I1)"
        );
        caller.pass(Duration::from_millis(2));
        assert!(is_granted(&caller.call(&[&request(next)])[0]), "one lease after the step");
    }
}

/// I1, I2: whatever the clock does, every renewal gives a holder its whole lease.
fn a_clock_set_back_takes_nothing_from_a_holder_that_lives(server: &Server) {
    for request in kinds() {
        let mut caller = Caller::new(server);
        let [owner, other] = std::array::from_fn(|_| Owner::new());
        assert!(is_granted(&caller.call(&[&request(owner)])[0]));
        for _ in 0..5 {
            set_back(&mut caller, HOUR);
            assert_eq!(caller.call(&[&renewal("x", owner)]), ["1"]);
            caller.pass(LEASE - Duration::from_millis(1));
            assert_eq!(caller.call(&[&request(other)]), ["3"]);
            assert_eq!(caller.call(&[&renewal("x", owner)]), ["1"]);
        }
        assert_eq!(caller.call(&[&release("x", owner)]), ["0"]);
        assert!(is_granted(&caller.call(&[&request(other)])[0]));
    }
}

/// I7: a waiter that died before the clock was set back is dead within its heartbeat after it.
fn a_dead_waiter_is_passed_over_though_the_clock_was_set_back(server: &Server) {
    let mut caller = Caller::new(server);
    let [holder, dead, next] = std::array::from_fn(|_| Owner::new());
    caller.call(&[&acquire("x", holder)]);
    caller.call(&[&waiting(acquire("x", dead))]);
    set_back(&mut caller, HOUR);
    for _ in 0..4 {
        assert_eq!(caller.call(&[&renewal("x", holder)]), ["1"]);
        caller.call(&[&waiting(acquire("x", next))]);
        caller.pass(LEASE / 3);
    }
    assert_eq!(caller.call(&[&release("x", holder)]), ["0"]);
    let line = &caller.call(&[&waiting(acquire("x", next))])[0];
    assert!(is_granted(line), "not granted to the dead waiter: {line}");
}

fn fence(line: &str) -> u64 {
    line.strip_prefix("1 ").unwrap().split(' ').next().unwrap().parse().unwrap()
}

fn kept(caller: &mut Caller) -> i64 {
    match caller.command(&["PTTL", &keys::lock_key(&name("x"))]) {
        Plain::Integer(left) => left,
        other => panic!("{other:?}"),
    }
}

/// A clock was a day ahead, and corrected: two hours later the fence had expired, and the next one
/// was smaller, without any loss of data. I4.
fn a_fence_ahead_of_the_clock_is_kept_until_the_clock_has_caught_up(server: &Server) {
    let day = 24 * HOUR;
    let mut caller = Caller::new(server);
    let owner = Owner::new();
    caller.pass(day);
    let first = fence(&caller.call(&[&acquire("x", owner)])[0]);
    caller.call(&[&release("x", owner)]);
    set_back(&mut caller, day);
    let second = fence(&caller.call(&[&acquire("x", owner)])[0]);
    assert!(second > first);
    let a_day = i64::try_from(day.as_millis()).unwrap();
    assert!(kept(&mut caller) > a_day, "held: {} ms", kept(&mut caller));
    caller.call(&[&release("x", owner)]);
    assert!(kept(&mut caller) > a_day, "released: {} ms", kept(&mut caller));
}

/// The limit of I4, so that its wording stays true. A clock set back by less than the time since, or before
/// the fence has expired, changes nothing.
fn a_lock_idle_beyond_the_retention_forgets_its_fence_and_a_clock_set_back_then_gives_a_smaller_one(
    server: &Server,
) {
    let use_shortly = |caller: &mut Caller| {
        let owner = Owner::new();
        let line = caller.call(&[&acquire("x", owner)]).remove(0);
        caller.call(&[&release("x", owner)]);
        fence(&line)
    };
    let idle = LEASE + Duration::from_millis(RETENTION.parse().unwrap());
    // Whether the fence has expired, how far the clock is set back then, and whether the next fence is larger.
    for (is_forgotten, step, grows) in
        [(false, HOUR, true), (true, idle - LEASE, true), (true, idle + LEASE, false)]
    {
        let mut caller = Caller::new(server);
        let first = use_shortly(&mut caller);
        assert!(
            kept(&mut caller) <= i64::try_from(idle.as_millis()).unwrap(),
            "no longer than that"
        );
        caller.pass(idle);
        if is_forgotten {
            caller.command(&["DEL", &keys::lock_key(&name("x"))]);
        }
        set_back(&mut caller, step);
        let second = use_shortly(&mut caller);
        assert_eq!(second > first, grows, "{is_forgotten} {step:?}: {second} after {first}");
    }
}

fn a_renewal_returns_the_time(server: &Server) {
    let mut caller = Caller::new(server);
    let [owner, other] = std::array::from_fn(|_| Owner::new());
    caller.call(&[&acquire("x", owner)]);
    for (owner, state) in [(owner, "1"), (other, "0")] {
        caller.now = Moment::from_micros(1_794_768_132_000_042);
        let renewal = renewal("x", owner);
        let reply = caller
            .run(&scripts::RENEW, &[&name("x")], |it| renewal.arguments(common("client"), it));
        let head = format!("nonce {} {RETENTION}", caller.client);
        assert_eq!(reply.text(), Some(&format!("{head} 1794768132000042\n{state}")[..]));
    }
}
