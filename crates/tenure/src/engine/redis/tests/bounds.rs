//! One call does a bounded amount of work, whatever a lock contains: a server performs one call at a
//! time. Work is counted in commands, not in seconds.

use tenure_testkit::Server;
use tenure_testkit::resp::Reply as Plain;

use super::answers::{acquire, name, permits, release, renewal, waiting};
use super::caller::Caller;
use super::*;
use crate::core::shape::{Kind, Shape};

on_every_server!(
    expired_holders_are_removed_in_slices,
    very_many_holders_are_shown_in_part_and_counted_in_full,
    dead_waiters_are_passed_over_in_slices,
    a_lock_of_very_many_holders_is_taken_away_in_slices,
    parties_that_gave_up_cost_a_barrier_nothing,
    one_short_lease_does_not_make_every_call_check_all_holders,
    many_waiters_that_reconnect_are_served_though_one_stays_away,
);

const MANY: usize = 2_500;

/// The limit for one call: a few commands for each of 250 waiters, or one read of each of a thousand.
const COMMANDS_AT_MOST: i64 = 2_500;

fn reader(owner: Owner) -> AcquireRequest {
    let shape = Shape::new(Kind::ReadWrite, 1_000_000_000, 1).unwrap();
    AcquireRequest { shape, ..acquire("x", owner) }
}

fn writer(owner: Owner) -> AcquireRequest {
    let shape = Shape::new(Kind::ReadWrite, 1_000_000_000, 1_000_000_000).unwrap();
    AcquireRequest { shape, ..acquire("x", owner) }
}

fn in_batches<O: Batched>(caller: &mut Caller, operations: &[O]) {
    for some in operations.chunks(128) {
        caller.call(&some.iter().collect::<Vec<_>>());
    }
}

/// How many commands the server has executed, including those of scripts.
fn executed(caller: &mut Caller) -> i64 {
    let Plain::Bulk(Some(text)) = caller.command(&["INFO", "commandstats"]) else {
        panic!("no INFO")
    };
    let text = String::from_utf8(text).unwrap();
    let calls = text.lines().filter_map(|line| line.split_once("calls=")?.1.split(',').next());
    calls.map(|count| count.parse::<i64>().unwrap()).sum()
}

/// Repeats a call until there is no more to do; returns the last answer. No call exceeds the limit.
fn until_done(
    caller: &mut Caller,
    mut operate: impl FnMut(&mut Caller) -> String,
) -> (String, u32) {
    for calls in 1.. {
        let before = executed(caller);
        let line = operate(caller);
        let done = executed(caller) - before;
        assert!(done < COMMANDS_AT_MOST, "{done} commands in one call");
        if !line.ends_with('+') {
            return (line, calls);
        }
        assert!(calls < 100, "endless: {line}");
    }
    unreachable!("calls are counted from one")
}

/// Ending the leases of 100,000 crashed readers in one call blocked the server for 0.68 s.
fn expired_holders_are_removed_in_slices(server: &Server) {
    let mut caller = Caller::new(server);
    let readers: Vec<_> = (0..MANY).map(|_| reader(Owner::new())).collect();
    in_batches(&mut caller, &readers);
    caller.pass(Duration::from_secs(31));
    let request = writer(Owner::new());
    let (line, calls) = until_done(&mut caller, |it| it.call(&[&request]).remove(0));
    assert!(line.starts_with("1 ") && calls > 1, "{line} after {calls} calls");
}

/// Inspecting a lock with 100,000 holders blocked the server for 1.05 s.
fn very_many_holders_are_shown_in_part_and_counted_in_full(server: &Server) {
    let mut caller = Caller::new(server);
    let readers: Vec<_> = (0..MANY).map(|_| reader(Owner::new())).collect();
    in_batches(&mut caller, &readers);
    let before = executed(&mut caller);
    let reply = caller.run(&scripts::INSPECT, &[&name("x")], |command| {
        ["9", "10"].iter().for_each(|most| command.push(most));
    });
    assert!(executed(&mut caller) - before < 100);
    let info =
        records::read_lock(name("x"), &reply.array().unwrap()[1], &Default::default()).unwrap();
    assert_eq!((info.holding, info.holders.len()), (MANY, 10));
}

/// Behind 2,500 dead waiters of one client a live one waited for 9.9 s, with the lock free. I7.
fn dead_waiters_are_passed_over_in_slices(server: &Server) {
    let mut caller = Caller::new(server);
    let [holder, live, other] = std::array::from_fn(|_| Owner::new());
    caller.call(&[&acquire("x", holder)]);
    let own = std::mem::replace(&mut caller.client, "dead".to_owned());
    let dead: Vec<_> = (0..MANY).map(|_| waiting(acquire("x", Owner::new()))).collect();
    in_batches(&mut caller, &dead);
    caller.client = own;
    caller.call(&[&waiting(acquire("x", live))]);
    assert_eq!(caller.call(&[&release("x", holder)]), ["0+"], "there is more to do");
    let settle = super::answers::cancel("x", other);
    let (_, calls) = until_done(&mut caller, |it| it.call(&[&settle]).remove(0));
    assert!(calls > 1);
    let message = convert(caller.receiver.read().unwrap());
    let text = message.array().unwrap()[2].text().unwrap();
    assert!(text.starts_with(&format!("granted {live}:0 ")), "{text}");
}

fn a_lock_of_very_many_holders_is_taken_away_in_slices(server: &Server) {
    let mut caller = Caller::new(server);
    let many: Vec<_> = (0..MANY).map(|_| reader(Owner::new())).collect();
    in_batches(&mut caller, &many);
    let mut taken = 0;
    for calls in 1.. {
        let before = executed(&mut caller);
        let reply = caller.run(&scripts::FORCE, &[&name("x")], |command| {
            ["", "host 1 program why", "60000"].iter().for_each(|it| command.push(it));
        });
        let done = executed(&mut caller) - before;
        assert!(done < COMMANDS_AT_MOST, "{done} commands in one call");
        let [_, owners, rest, _] = reply.array().unwrap() else { panic!("not four") };
        taken += owners.array().unwrap().len();
        if rest.number() == Some(0) {
            assert!(calls > 1);
            break;
        }
    }
    assert_eq!(taken, MANY);
    assert!(caller.call(&[&permits(acquire("x", Owner::new()), 3)])[0].starts_with("1 "), "free");
}

/// 100,000 parties that had joined and left blocked the server for 0.38 s when the last party arrived.
fn parties_that_gave_up_cost_a_barrier_nothing(server: &Server) {
    const PARTIES: usize = 200;
    let mut caller = Caller::new(server);
    let shape = Shape::new(Kind::Barrier, PARTIES as u32, 1).unwrap();
    let party = |owner| AcquireRequest { shape, ..waiting(acquire("x", owner)) };
    let first = Owner::new();
    caller.call(&[&party(first)]);
    for _ in 0..50 {
        let owners: [Owner; 100] = std::array::from_fn(|_| Owner::new());
        in_batches(&mut caller, &owners.map(party));
        in_batches(&mut caller, &owners.map(|owner| super::answers::cancel("x", owner)));
    }
    let others: Vec<_> = (2..PARTIES).map(|_| party(Owner::new())).collect();
    in_batches(&mut caller, &others);
    let line = caller.call(&[&others[9]]).remove(0);
    assert!(line.starts_with("2 "), "it waits: {line}");
    let before = executed(&mut caller);
    let line = caller.call(&[&party(Owner::new())]).remove(0);
    let done = executed(&mut caller) - before;
    assert!(line.starts_with("1 "), "the last one opens it: {line}");
    assert!(done < COMMANDS_AT_MOST, "{done} commands in one call");
    for request in [&party(first), &others[9]] {
        let line = caller.call(&[request]).remove(0);
        assert!(line.starts_with("1 "), "for all: {line}");
    }
}

/// With one lease of 100 ms among 20,000 holders, all of them were checked ten times a second.
fn one_short_lease_does_not_make_every_call_check_all_holders(server: &Server) {
    let mut caller = Caller::new(server);
    let readers: Vec<_> = (0..MANY).map(|_| reader(Owner::new())).collect();
    in_batches(&mut caller, &readers);
    let (short, step) = (Owner::new(), Duration::from_millis(5));
    let lease = Lease::new(2 * step).unwrap();
    caller.call(&[&AcquireRequest { lease, ..reader(short) }]);
    let mut checks = 0;
    for _ in 0..200 {
        caller.pass(step);
        let line = caller.call(&[&Renewal { lease, ..renewal("x", short) }]).remove(0);
        assert!(line.starts_with('1'), "{line}");
        checks += usize::from(line.ends_with('+'));
    }
    // In that second: 20 checks, each in three calls, the last of which has no more to do.
    assert!((20..=50).contains(&checks), "{checks} calls that checked holders");
    // The end of its lease is noticed all the same.
    caller.pass(Duration::from_millis(100));
    let settle = super::answers::cancel("x", Owner::new());
    until_done(&mut caller, |it| it.call(&[&settle]).remove(0));
    assert_eq!(caller.call(&[&renewal("x", short)]), ["0"]);
}

/// I7, I10: the search for the one waiter that is still parked, behind all that have polled again, leaves budget to
/// serve those.
fn many_waiters_that_reconnect_are_served_though_one_stays_away(server: &Server) {
    let mut caller = Caller::new(server);
    let holder = Owner::new();
    caller.call(&[&acquire("x", holder)]);
    let channel = format!("{}offline", keys::CHANNEL);
    caller.client = "offline".to_owned();
    let owners: Vec<_> = (0..MANY).map(|_| Owner::new()).collect();
    let requests: Vec<_> = owners.iter().map(|owner| waiting(acquire("x", *owner))).collect();
    in_batches(&mut caller, &requests);
    let settle = super::answers::cancel("x", Owner::new());
    caller.call(&[&release("x", holder)]);
    until_done(&mut caller, |it| it.call(&[&settle]).remove(0));
    // All but the last are subscribed again, and poll.
    caller.receiver.command(&["SUBSCRIBE", &channel]).unwrap();
    in_batches(&mut caller, &requests[..MANY - 1]);
    for pair in owners[..4].windows(2) {
        let (line, _) = until_done(&mut caller, |it| it.call(&[&release("x", pair[0])]).remove(0));
        assert!(matches!(&line[..], "0" | "none"), "{line}");
        until_done(&mut caller, |it| it.call(&[&settle]).remove(0));
        let line = caller.call(&[&renewal("x", pair[1])]).remove(0);
        assert!(line.starts_with('1'), "handed over to the next: {line}");
    }
}
