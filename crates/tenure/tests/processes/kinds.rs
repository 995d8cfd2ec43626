//! Readers, holders of permits and parties that are killed.

use std::thread::JoinHandle;
use std::time::Duration;

use tenure::blocking::block_on;
use tenure::{Error, Tenure, WriteGuard};
use tenure_testkit::Server;
use tokio::time::Instant;

use super::other::{LONG, connect, start, wait_for};

/// A waiting writer, on a thread of its own.
fn writer(tenure: &Tenure) -> JoinHandle<(WriteGuard, Instant)> {
    let lock = tenure.rwlock("x");
    let writer = std::thread::spawn(move || {
        let written = block_on(lock.write_within(LONG)).unwrap();
        (written, Instant::now())
    });
    wait_for(tenure, |info| info.waiting == 1);
    writer
}

/// I1, I7, R27: every reader has a lease of its own. A reader that was killed blocks no writer after it, and
/// a live one still does.
#[test]
fn a_killed_reader_does_not_hold_up_a_writer_nor_let_it_in() {
    let server = Server::start();
    let tenure = connect(&server);
    let reading = block_on(tenure.rwlock("x").read()).unwrap();
    let mut other = start(&server, "reader");
    other.expect("holds");
    let writer = writer(&tenure);
    other.kill();
    wait_for(&tenure, |info| info.holders.len() == 1);
    assert!(!writer.is_finished(), "one still reads");
    assert_eq!(block_on(tenure.lock("x").inspect()).unwrap().waiting, 1);
    let left = Instant::now();
    drop(reading);
    let (written, at) = writer.join().unwrap();
    assert!(at > left && !written.is_lost());
}

/// I1, R27: no writer is granted during the lease of a reader that was killed.
#[test]
fn a_killed_reader_keeps_a_writer_out_for_its_lease() {
    let server = Server::start();
    let tenure = connect(&server);
    let mut other = start(&server, "reader");
    other.expect("holds");
    let writer = writer(&tenure);
    other.kill();
    let asked = Instant::now();
    let lease_left = block_on(tenure.lock("x").inspect()).unwrap().holders[0].lease_left;
    let (_written, at) = writer.join().unwrap();
    assert!(at >= asked + lease_left, "its lease had {lease_left:?} left");
    assert!(at < asked + lease_left + Duration::from_secs(3), "I7: it asks when the lease ends");
}

/// R27: the permits of a process that was killed are free when its lease ends.
#[test]
fn permits_of_a_killed_process_come_back() {
    let server = Server::start();
    let tenure = connect(&server);
    let semaphore = tenure.semaphore("x", 3);
    let mut other = start(&server, "permits");
    other.expect("holds");
    assert_eq!(block_on(semaphore.available()).unwrap(), 1);
    assert!(block_on(semaphore.permits(2).try_acquire()).unwrap().is_none());
    other.kill();
    let three = block_on(semaphore.permits(3).acquire_within(Duration::from_secs(5))).unwrap();
    assert!(!three.is_lost());
    assert_eq!(block_on(semaphore.available()).unwrap(), 0);
}

/// I7, R27: a party that was killed is not counted after its heartbeat; the barrier opens with a live one.
#[test]
fn a_barrier_does_not_open_with_a_killed_party() {
    let server = Server::start();
    let tenure = connect(&server);
    let barrier = tenure.barrier("x", 2);
    let mut other = start(&server, "party");
    other.expect("waits");
    wait_for(&tenure, |info| info.waiting == 1);
    other.kill();
    wait_for(&tenure, |info| info.waiting == 0);
    let error = block_on(barrier.wait_within(Duration::from_secs(1))).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");

    let mut next = start(&server, "party");
    next.expect("waits");
    block_on(barrier.wait_within(LONG)).unwrap();
    next.expect("Granted");
}
