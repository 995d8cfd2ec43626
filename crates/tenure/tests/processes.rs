//! Real processes that are killed and stopped while they hold a lock or wait for it (R4, R12, R26,
//! R27).

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/process.rs"]
mod process;
mod processes {
    mod kinds;
    pub(crate) mod other;
}

use std::time::Duration;

use processes::other::{LONG, connect, start, wait_for};
use rustix::process::Signal;
use tenure::Released;
use tenure::blocking::block_on;
use tenure_testkit::Server;

/// R4: kill -9 leaves the lease to end, and the waiter asks by itself.
#[test]
fn a_killed_holder_frees_its_lock_when_its_lease_ends() {
    let server = Server::start();
    let tenure = connect(&server);
    let mut other = start(&server, "lock");
    other.expect("holds");
    assert!(block_on(tenure.lock("x").try_acquire()).unwrap().is_none());
    other.kill();
    drop(block_on(tenure.lock("x").acquire_within(Duration::from_secs(5))).unwrap());
}

/// I3, I9, R26: a process that was stopped past its lease learns at once that it lost the lock, and does not
/// affect the current holder.
#[test]
fn a_stopped_holder_learns_its_loss_and_harms_no_other() {
    let server = Server::start();
    let tenure = connect(&server);
    let mut other = start(&server, "lock");
    other.expect("holds");
    let old = block_on(tenure.lock("x").inspect()).unwrap().holders[0].fence;
    other.signal(Signal::STOP);
    let guard = block_on(tenure.lock("x").acquire_within(LONG)).unwrap();
    assert!(guard.fence() > old, "its writes can be refused");
    other.signal(Signal::CONT);
    other.expect("lost");
    other.expect("AlreadyLost");
    guard.ensure_held().unwrap();
    assert_eq!(block_on(guard.release()).unwrap(), Released::Now);
}

/// R12, I7: waiters that are killed are skipped as soon as the server knows.
#[test]
fn killed_waiters_do_not_hold_up_the_queue() {
    let server = Server::start();
    let tenure = connect(&server);
    let guard = block_on(tenure.lock("x").acquire()).unwrap();
    let mut others: Vec<_> = (1..=4)
        .map(|count| {
            let other = start(&server, "lock");
            wait_for(&tenure, |info| info.waiting == count);
            other
        })
        .collect();
    let mut last = others.pop().unwrap();
    others.iter().for_each(|other| other.signal(Signal::KILL));
    drop(others);
    drop(guard);
    last.expect("holds");
}
