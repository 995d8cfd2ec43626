//! The format on other links than a plain connection: TLS, and a master that Sentinels name.

use std::time::{Duration, Instant};

use tenure::blocking::block_on;
use tenure::{Lock, Released, Tenure};
use tenure_testkit::resp::{Connection, Reply};
use tenure_testkit::{Flavor, Sentinels, Server, Tls};

use super::shared::{LONG, SOON, connect, pass};

/// Longer than a failover takes: the lock must survive it.
const LEASE: Duration = Duration::from_secs(60);

/// Waits for a lock on a thread; returns when it was acquired.
fn waiting(lock: Lock) -> std::thread::JoinHandle<(Instant, tenure::Guard)> {
    let waiter = std::thread::spawn(move || {
        let guard = block_on(lock.acquire_within(LONG)).unwrap();
        (Instant::now(), guard)
    });
    pass(Duration::from_millis(300));
    assert!(!waiter.is_finished());
    waiter
}

/// A lock in Redisson's format is a hash with the plain name.
fn is_redissons(connection: &mut Connection, name: &str) -> bool {
    connection.command(&["TYPE", name]).unwrap() == Reply::Simple("hash".to_owned())
}

/// R30: a release wakes a waiter by a message, over TLS.
#[test]
fn tls_is_shared() {
    let server = Server::builder().flavor(Flavor::Redis).tls(Tls::default()).start();
    let (holder, waiter) = (connect(&server.url()), connect(&server.url()));
    let guard = block_on(holder.lock("x").acquire()).unwrap();
    assert!(is_redissons(&mut server.connect().unwrap(), "x"));
    let waiter = waiting(waiter.lock("x"));
    let freed = Instant::now();
    assert_eq!(block_on(guard.release()).unwrap(), Released::Now);
    let (at, guard) = waiter.join().unwrap();
    let waited = at.saturating_duration_since(freed);
    assert!(waited < SOON, "woken after {waited:?}");
    assert_eq!(block_on(guard.release()).unwrap(), Released::Now);
}

fn until_well(tenure: &Tenure) {
    let started = Instant::now();
    while !tenure.health().is_well() {
        assert!(started.elapsed() < LONG, "it is not well again");
        pass(Duration::from_millis(20));
    }
}

/// R30, I9: another master is promoted. The holder keeps its lock there, and its waiter is woken by it.
#[test]
fn sentinels_are_followed() {
    let group = Sentinels::start(Flavor::Redis, 1);
    let (holder, waiter) = (connect(&group.url()), connect(&group.url()));
    let guard = block_on(holder.lock("x").lease(LEASE).acquire()).unwrap();
    let started = Instant::now();
    while !group.servers.iter().all(|it| is_redissons(&mut it.connect().unwrap(), "x")) {
        assert!(started.elapsed() < LONG, "the replicas have the lock");
        pass(Duration::from_millis(20));
    }
    let waiting = waiting(waiter.lock("x"));
    group.fail_over();
    until_well(&holder);
    until_well(&waiter);
    guard.ensure_held().unwrap();
    assert_eq!(block_on(guard.release()).unwrap(), Released::Now);
    let (_, next) = waiting.join().unwrap();
    assert!(is_redissons(&mut group.master().unwrap().connect().unwrap(), "x"), "the new master");
    assert_eq!(block_on(next.release()).unwrap(), Released::Now);
}
