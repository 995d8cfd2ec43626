//! Confirmations by replicas, and the connection that they are about.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use tenure_testkit::{Flavor, Server};

use super::super::confirmations::Confirmations;
use super::*;
use crate::blocking::block_on;
use crate::engine::Renewed;

on_every_server!(
    a_lost_connection_is_never_confirmed,
    every_renewal_is_a_write,
    a_waker_that_panics_ends_no_later_confirmation,
);

/// On a new connection, a server may count all replicas, whatever they have: what was written on the old one is not
/// confirmed by it.
fn a_lost_connection_is_never_confirmed(server: &Server) {
    let engine = block_on(RedisEngine::connect(&server.url())).unwrap();
    let confirmations = confirmations(&engine);
    let none = Replicas::new(1, Duration::from_millis(20)).unwrap();
    let wire = confirmations.link.wire().unwrap();
    assert_eq!(block_on(confirmations.confirm(wire.clone(), none)).unwrap(), 0);
    let mut connection = server.connect().unwrap();
    connection.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
    let is_new = || confirmations.link.wire().is_some_and(|new| !Arc::ptr_eq(&new, &wire));
    while !is_new() {
        std::thread::yield_now();
    }
    block_on(confirmations.confirm(wire, none)).unwrap_err();
    let new = confirmations.link.wire().unwrap();
    assert_eq!(block_on(confirmations.confirm(new, none)).unwrap(), 0);
}

/// A server waits for the last write of a connection. A renewal that changes nothing, because the lease is longer already,
/// must be one too: otherwise replicas would confirm it that do not have the grant.
fn every_renewal_is_a_write(server: &Server) {
    let engine = block_on(RedisEngine::connect(&server.url())).unwrap();
    // Without a replica, a server does not count; the keys that it changes are counted in any case.
    let changes = || {
        let info = server.connect().unwrap().command(&["INFO", "persistence"]).unwrap();
        let info = info.text().unwrap();
        let line = info.lines().find_map(|it| it.strip_prefix("rdb_changes_since_last_save:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let lease = |millis| Lease::new(Duration::from_millis(millis)).unwrap();
    let about = Arc::new(About::this_process());
    for lock in [Lock::Mutex, Lock::Semaphore, Lock::ReadWrite] {
        let (name, entry) = (LockName::new(lock.name()).unwrap(), Entry::again(Owner::new()));
        let request = AcquireRequest {
            name: name.clone(),
            entry,
            shape: lock.shape(0, 0),
            lease: lease(60_000),
            about: about.clone(),
            proposal: None,
            queue: None,
        };
        block_on(engine.acquire(request)).unwrap();
        for millis in [1_000, 60_000, 90_000, 90_000, 1_000] {
            let before = changes();
            let renewal = Renewal { name: name.clone(), entry, lease: lease(millis), commit: None };
            let renewed = block_on(engine.renew(vec![renewal])).unwrap().remove(0).unwrap();
            assert_eq!(renewed, Renewed::Extended);
            assert!(changes() > before, "{name}: a renewal by {millis} ms is no write");
        }
    }
}

/// The confirmations of an engine, connected.
fn confirmations(engine: &RedisEngine) -> Arc<Confirmations> {
    let confirmations = engine.server.routes.node(0).unwrap().confirmations().clone();
    block_on(confirmations.link.first_attempt()).unwrap();
    confirmations
}

/// A waker of a broken executor.
#[derive(Default)]
struct Panicking(AtomicUsize);

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("a waker panics");
    }
}

/// I8: the waker of one caller panicked, and no confirmation of this client was ever answered again.
fn a_waker_that_panics_ends_no_later_confirmation(server: &Server) {
    let engine = block_on(RedisEngine::connect(&server.url())).unwrap();
    let confirmations = confirmations(&engine);
    let none = Replicas::new(1, Duration::from_millis(20)).unwrap();
    let wire = confirmations.link.wire().unwrap();
    let panicking = Arc::new(Panicking::default());
    let waker = Waker::from(panicking.clone());
    let mut first = Box::pin(confirmations.confirm(wire, none));
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    while panicking.0.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let wire = confirmations.link.wire().unwrap();
    assert_eq!(block_on(confirmations.confirm(wire, none)).unwrap(), 0);
    assert_eq!(block_on(first).unwrap(), 0);
}

/// A WAIT that is never answered makes an error of a request in its time, not a caller that waits for ever.
#[test]
fn a_confirmation_does_not_wait_for_ever() {
    let server = Server::builder().flavor(Flavor::Redis).start();
    let engine = block_on(RedisEngine::connect(&server.url())).unwrap();
    let confirmations = confirmations(&engine);
    confirmations.pretend_to_wait();
    let wire = confirmations.link.wire().unwrap();
    let none = Replicas::new(1, Duration::from_millis(20)).unwrap();
    let error = block_on(confirmations.confirm(wire, none)).unwrap_err();
    assert!(error.is_unknown() && error.to_string().contains("WAIT"), "{error}");
}
