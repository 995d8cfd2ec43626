//! A server that is out of memory and evicts nothing, or that refuses writes: without memory, operations that keep or
//! end a hold succeed, and only new claims are refused; and a refused operation has notified no client.

use tenure_testkit::Server;
use tenure_testkit::resp::Reply as Plain;

use super::answers::{acquire, cancel, name, permits, release, renewal, waiting};
use super::caller::Caller;
use super::*;

on_every_server!(
    a_full_server_renews_and_releases_and_refuses_new_locks,
    a_full_server_takes_a_lock_away_and_notifies_its_holder,
    a_server_that_refuses_to_write_has_notified_no_client,
);

fn inspect(caller: &mut Caller) -> Reply {
    let reply = caller.run(&scripts::INSPECT, &[&name("x")], |command| {
        ["9", "9"].iter().for_each(|most| command.push(most));
    });
    reply.array().unwrap()[1].clone()
}

fn force(caller: &mut Caller) -> Reply {
    caller.run(&scripts::FORCE, &[&name("x")], |command| {
        ["", "host 1 program why", "60000"].iter().for_each(|it| command.push(it));
    })
}

/// Lets a second pass, fills the server's memory, and operates on it. The test's clock, which is kept in keys, stands
/// still meanwhile.
fn full<T>(caller: &mut Caller, operate: impl FnOnce(&mut Caller) -> T) -> T {
    caller.pass(Duration::from_secs(1));
    inspect(caller);
    caller.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    caller.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = caller.command(&["SET", "test:other", "x"]);
    assert!(matches!(&refused, Plain::Error(it) if it.starts_with("OOM")), "{refused:?}");
    let result = operate(caller);
    caller.command(&["CONFIG", "SET", "maxmemory", "0"]);
    result
}

/// Another tenant filled the server: every renewal was refused, and every held lock was lost. I6, I9.
fn a_full_server_renews_and_releases_and_refuses_new_locks(server: &Server) {
    for is_shared in [false, true] {
        let mut caller = Caller::new(server);
        let [holder, waiter, new] = std::array::from_fn(|_| Owner::new());
        let request = |owner| {
            let request = waiting(acquire("x", owner));
            if is_shared { permits(request, 3) } else { request }
        };
        caller.call(&[&request(holder)]);
        assert_eq!(full(&mut caller, |it| it.call(&[&renewal("x", holder)])), ["1"], "plain");
        caller.call(&[&request(waiter)]);
        let left = inspect(&mut caller);
        assert_eq!(full(&mut caller, |it| it.call(&[&renewal("x", holder)])), ["1"]);
        assert_eq!(inspect(&mut caller), left, "a second passed, and the lease was extended");
        let line = full(&mut caller, |it| it.call(&[&request(waiter)])).remove(0);
        assert!(line.starts_with("2 "), "it continues to wait: {line}");
        let line = full(&mut caller, |it| it.call(&[&acquire("new", new)])).remove(0);
        assert!(line.starts_with("-OOM") || line.contains(" -OOM "), "a new lock: {line}");
        assert!(!errors::of_server(&line[1..]).is_unknown(), "known to be refused: {line}");
        let line = full(&mut caller, |it| it.call(&[&release("x", holder)])).remove(0);
        assert_eq!(line, "0", "released, and handed over");
        let line = full(&mut caller, |it| it.call(&[&request(waiter)])).remove(0);
        assert!(line.starts_with("1 "), "to the waiter: {line}");
        assert_eq!(full(&mut caller, |it| it.call(&[&cancel("x", waiter)])), ["0"]);
        let info = full(&mut caller, inspect);
        assert_eq!(info.array().unwrap()[0].text(), Some(""), "inspecting works: {info:?}");
    }
}

/// The holder was notified before the first write, which was refused: the lock was reported lost, but still held. I6.
fn a_full_server_takes_a_lock_away_and_notifies_its_holder(server: &Server) {
    let mut caller = Caller::new(server);
    let owner = Owner::new();
    caller.call(&[&acquire("x", owner)]);
    let answer = full(&mut caller, force);
    let taken = answer.array().unwrap()[1].array().unwrap();
    assert_eq!(taken.iter().map(|it| it.text().unwrap()).collect::<Vec<_>>(), [owner.to_string()]);
    let message = convert(caller.receiver.read().unwrap());
    let text = message.array().unwrap()[2].text().unwrap();
    assert_eq!(text, format!("lost {owner} {}", keys::lock_key(&name("x"))));
    assert_eq!(caller.call(&[&renewal("x", owner)]), ["0"]);
}

/// A master that became a replica: a refused operation must not have notified a client. I1, I6.
fn a_server_that_refuses_to_write_has_notified_no_client(server: &Server) {
    let mut caller = Caller::new(server);
    let [holder, waiter] = std::array::from_fn(|_| Owner::new());
    caller.call(&[&acquire("x", holder)]);
    caller.call(&[&waiting(acquire("x", waiter))]);
    // Its lease has ended: the next operation would hand the lock over.
    caller.pass(Duration::from_secs(30));
    inspect_clock(&mut caller);
    caller.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let refused = |line: &str| line.contains("READONLY") && !errors::of_server(line).is_unknown();
    for line in [
        caller.call(&[&waiting(acquire("x", Owner::new()))]).remove(0),
        caller.call(&[&renewal("x", holder)]).remove(0),
        caller.call(&[&release("x", holder)]).remove(0),
        caller.call(&[&cancel("x", holder)]).remove(0),
    ] {
        assert!(line.starts_with('-') && refused(&line[1..]), "{line}");
    }
    let answer = force(&mut caller);
    assert!(matches!(&answer, Reply::Error(error) if refused(error)), "{answer:?}");
    caller.command(&["REPLICAOF", "NO", "ONE"]);
    assert!(caller.receiver.read().is_err(), "no client was notified");
}

/// Sets the test's clock, without an operation on the lock.
fn inspect_clock(caller: &mut Caller) {
    caller.run(&scripts::INSPECT, &[&name("another")], |command| {
        ["9", "9"].iter().for_each(|most| command.push(most));
    });
}
