//! Waiters whose client is not subscribed: it may be dead, or only its connection for wake-ups
//! is lost. I7, I10.

use tenure_testkit::Server;
use tenure_testkit::resp::Connection;

use super::answers::{acquire, permits, release, waiting};
use super::caller::Caller;
use super::*;

on_every_server!(
    a_waiter_that_cannot_be_reached_keeps_its_place,
    waiters_that_cannot_be_reached_are_served_in_order,
    a_lock_that_is_reserved_goes_to_the_next_in_time,
    dead_waiters_cost_nothing_though_a_client_subscribes_to_a_pattern,
    a_parked_waiter_that_never_polls_is_removed,
    a_dead_waiter_that_does_not_fit_keeps_none_waiting,
    a_full_server_serves_a_waiter_that_was_parked,
);

const HEARTBEAT: Duration = Duration::from_secs(30);

/// Operates as another client.
fn as_client<T>(caller: &mut Caller, client: &str, operate: impl FnOnce(&mut Caller) -> T) -> T {
    let own = std::mem::replace(&mut caller.client, client.to_owned());
    let result = operate(caller);
    caller.client = own;
    result
}

fn poll(caller: &mut Caller, client: &str, owner: Owner) -> String {
    as_client(caller, client, |it| it.call(&[&waiting(acquire("x", owner))]).remove(0))
}

fn is_granted(line: &str) -> bool {
    line.starts_with("1 ")
}

fn is_queued(line: &str) -> bool {
    line.starts_with("2 ")
}

/// A waiter whose connection was lost briefly was served after all later ones.
fn a_waiter_that_cannot_be_reached_keeps_its_place(server: &Server) {
    let mut caller = Caller::new(server);
    let [holder, offline, second, third] = std::array::from_fn(|_| Owner::new());
    caller.call(&[&acquire("x", holder)]);
    poll(&mut caller, "offline", offline);
    for owner in [second, third] {
        caller.call(&[&waiting(acquire("x", owner))]);
    }
    assert_eq!(caller.call(&[&release("x", holder)]), ["0"]);
    assert!(
        is_granted(&caller.call(&[&waiting(acquire("x", second))])[0]),
        "others do not wait for it"
    );
    let line = poll(&mut caller, "offline", offline);
    assert!(line.starts_with("2 0 "), "no waiter is before it: {line}");
    let mut receiver = server.connect().unwrap();
    subscribe(&mut receiver, "offline");
    assert_eq!(caller.call(&[&release("x", second)]), ["0"]);
    assert!(is_granted(&poll(&mut caller, "offline", offline)));
    assert!(is_queued(&caller.call(&[&waiting(acquire("x", third))])[0]));
}

fn subscribe(receiver: &mut Connection, client: &str) {
    receiver.command(&["SUBSCRIBE", &format!("{}{client}", keys::CHANNEL)]).unwrap();
}

/// All connections for wake-ups were killed at once: six fair waiters were served 3, 4, 0, 5, 1, 2.
fn waiters_that_cannot_be_reached_are_served_in_order(server: &Server) {
    let mut caller = Caller::new(server);
    let holder = Owner::new();
    let owners: [Owner; 6] = std::array::from_fn(|_| Owner::new());
    caller.call(&[&acquire("x", holder)]);
    for (at, owner) in owners.iter().enumerate() {
        poll(&mut caller, &format!("offline{at}"), *owner);
    }
    assert_eq!(caller.call(&[&release("x", holder)]), ["0"]);
    // They reconnect, and poll, in another order.
    let receivers: Vec<_> = [3, 4, 0, 5, 1, 2]
        .into_iter()
        .map(|at: usize| {
            let mut receiver = server.connect().unwrap();
            let client = format!("offline{at}");
            subscribe(&mut receiver, &client);
            assert_eq!(is_granted(&poll(&mut caller, &client, owners[at])), at == 0, "{at}");
            receiver
        })
        .collect();
    for (at, owner) in owners.iter().enumerate() {
        let client = format!("offline{at}");
        assert!(is_granted(&poll(&mut caller, &client, *owner)), "{at}");
        assert_eq!(caller.call(&[&release("x", *owner)]), ["0"]);
    }
    drop(receivers);
}

/// The first of the unreachable waiters is dead: the next that polls waits for the reservation, no longer, and
/// the answer says how long.
fn a_lock_that_is_reserved_goes_to_the_next_in_time(server: &Server) {
    let mut caller = Caller::new(server);
    let [holder, dead, second, new] = std::array::from_fn(|_| Owner::new());
    caller.call(&[&acquire("x", holder)]);
    poll(&mut caller, "dead", dead);
    poll(&mut caller, "offline", second);
    assert_eq!(caller.call(&[&release("x", holder)]), ["0"]);
    let line = caller.call(&[&acquire("x", new)]).remove(0);
    assert_eq!(line, "3", "no other overtakes them meanwhile");
    let line = poll(&mut caller, "offline", second);
    assert!(line.starts_with("2 0 100000 "), "a tenth of a second: {line}");
    caller.pass(Duration::from_millis(99));
    assert!(poll(&mut caller, "offline", second).starts_with("2 0 1000 "));
    caller.pass(Duration::from_millis(1));
    assert!(is_granted(&poll(&mut caller, "offline", second)));
    // The dead waiter is still parked; a new request does not wait for it.
    assert_eq!(caller.call(&[&release("x", second)]), ["0"]);
    caller.pass(Duration::from_millis(100));
    assert!(is_granted(&caller.call(&[&acquire("x", new)])[0]));
}

/// A subscriber to `*` counts as a receiver of every message: each dead waiter was handed the lock, for a
/// claim lease.
fn dead_waiters_cost_nothing_though_a_client_subscribes_to_a_pattern(server: &Server) {
    let mut caller = Caller::new(server);
    let mut watching = server.connect().unwrap();
    watching.command(&["PSUBSCRIBE", "*"]).unwrap();
    let [holder, live] = std::array::from_fn(|_| Owner::new());
    caller.call(&[&acquire("x", holder)]);
    for at in 0..10 {
        poll(&mut caller, &format!("dead{at}"), Owner::new());
    }
    caller.call(&[&waiting(acquire("x", live))]);
    assert_eq!(caller.call(&[&release("x", holder)]), ["0"]);
    assert!(is_granted(&caller.call(&[&waiting(acquire("x", live))])[0]));
}

/// Their records are removed when their heartbeats end.
fn a_parked_waiter_that_never_polls_is_removed(server: &Server) {
    let mut caller = Caller::new(server);
    let [holder, other] = std::array::from_fn(|_| Owner::new());
    caller.call(&[&acquire("x", holder)]);
    let before = caller.state();
    for at in 0..40 {
        poll(&mut caller, &format!("dead{at}"), Owner::new());
    }
    assert_eq!(caller.call(&[&release("x", holder)]), ["0"]);
    caller.pass(HEARTBEAT);
    for _ in 0..3 {
        assert_eq!(caller.call(&[&release("x", other)]), ["none"]);
        caller.call(&[&acquire("x", other)]);
        caller.call(&[&release("x", other)]);
    }
    let keys: Vec<_> = caller.state().into_keys().collect();
    assert_eq!(keys, before.into_keys().collect::<Vec<_>>(), "no queue is left");
}

/// The writer of a killed client was the first waiter, and readers behind it waited until its heartbeat ended. I7.
fn a_dead_waiter_that_does_not_fit_keeps_none_waiting(server: &Server) {
    let mut caller = Caller::new(server);
    let [holder, dead, live] = std::array::from_fn(|_| Owner::new());
    let of_three = |owner, count| waiting(permits(acquire("x", owner), count));
    caller.call(&[&of_three(holder, 1)]);
    as_client(&mut caller, "dead", |it| it.call(&[&of_three(dead, 3)]));
    caller.call(&[&of_three(live, 1)]);
    let line = caller.call(&[&of_three(live, 1)]).remove(0);
    assert!(is_granted(&line), "{line}");
}

/// Returning to its place is a write as well: when that was refused, a live waiter failed though the lock was free.
fn a_full_server_serves_a_waiter_that_was_parked(server: &Server) {
    let mut caller = Caller::new(server);
    let [holder, offline] = std::array::from_fn(|_| Owner::new());
    caller.call(&[&acquire("x", holder)]);
    poll(&mut caller, "offline", offline);
    caller.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    caller.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let released = caller.call(&[&release("x", holder)]).remove(0);
    let line = poll(&mut caller, "offline", offline);
    caller.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(released, "0", "it was parked, and the lock released");
    assert!(is_granted(&line), "{line}");
}
