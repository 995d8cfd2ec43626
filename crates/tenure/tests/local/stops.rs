//! Processes that are stopped, and continued later.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use tenure::blocking::block_on;

use super::namespace;
use super::other::{MANY, start};
use crate::process::Process;
use crate::{LONG, connect, now, store, until_waiting};

/// I3, I9: stopped past its lease, a process is notified of its loss, and does not affect the next holder.
#[test]
fn a_stopped_holder_learns_its_loss_and_harms_nobody() {
    let (_around, folder) = store();
    let tenure = connect(&folder);
    let mut other = start(&folder, "hold for a second");
    other.expect("holds");
    let old = block_on(tenure.lock("x").inspect()).unwrap().holders[0].fence;
    stop(&other);
    let guard = block_on(tenure.lock("x").acquire_within(LONG)).unwrap();
    assert!(guard.fence() > old, "its writes can be refused");
    other.signal(Signal::CONT);
    other.expect("lost");
    other.expect("AlreadyLost");
    guard.ensure_held().unwrap();
    block_on(guard.release()).unwrap();
}

/// I7: the lock is handed to a process that is stopped; its claim is short.
#[test]
fn a_stopped_waiter_is_passed_over_and_gets_the_lock_later() {
    let (_around, folder) = store();
    let tenure = connect(&folder);
    let guard = block_on(tenure.lock("x").acquire()).unwrap();
    let mut stopped = start(&folder, "hold");
    until_waiting(&tenure, 1);
    let mut behind = start(&folder, "hold");
    until_waiting(&tenure, 2);
    stop(&stopped);
    let released = now();
    block_on(guard.release()).unwrap();
    behind.expect("holds");
    let took = released.elapsed();
    println!("passed over after {took:?}");
    // The claim lease of 3 s, which is also how often the waiter behind polls.
    assert!(took < Duration::from_millis(3500), "{took:?}");
    stopped.signal(Signal::CONT);
    until_waiting(&tenure, 1);
    behind.kill();
    stopped.expect("holds");
    let holders = block_on(tenure.lock("x").inspect()).unwrap().holders;
    assert_eq!(
        holders[0].about.pid,
        stopped.child.id(),
        "the missed grant is not the one it holds"
    );
}

/// Unread wake-ups fill the socket that they were sent to, and count against the sender's buffer.
#[test]
fn a_stopped_process_delays_no_wakeups_of_others() {
    // The limit that systemd sets; the kernel's default of 10 hides the effect on the sender.
    namespace::run("echo 512 > /proc/sys/net/unix/max_dgram_qlen", "flood a socket");
}

#[test]
fn wakeups_that_did_not_fit_in_a_socket_are_recovered() {
    let (_around, folder) = store();
    flood_a_socket(&folder);
}

pub(crate) fn flood_a_socket(folder: &Path) {
    let tenure = connect(folder);
    let guard = block_on(tenure.lock("x").acquire()).unwrap();
    let mut waiter = start(folder, "hold");
    until_waiting(&tenure, 1);
    let mut stopped = start(folder, "hold many");
    stopped.expect("holds");
    stop(&stopped);
    for number in 0..MANY {
        let lock = tenure.lock(format!("many/{number}"));
        block_on(lock.force_release("a test")).unwrap();
    }
    let released = now();
    block_on(guard.release()).unwrap();
    waiter.expect("holds");
    let took = released.elapsed();
    assert!(took < Duration::from_secs(1), "it was not woken: {took:?}");
    let went_on = now();
    stopped.signal(Signal::CONT);
    stopped.expect("lost");
    // Their leases last a minute.
    let took = went_on.elapsed();
    println!("all losses were reported after {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    let missed = fs::read_dir(folder.join("clients")).unwrap();
    let missed =
        missed.filter(|file| file.as_ref().unwrap().path().extension().unwrap() == "missed");
    assert_eq!(missed.count(), 0);
}

/// Stops a process, but not within a transaction, where a stop would block all others. Returns when all of its
/// threads are stopped, which takes a moment.
fn stop(process: &Process) {
    until_all_are(process, 'S');
    process.signal(Signal::STOP);
    until_all_are(process, 'T');
}

fn until_all_are(process: &Process, state: char) {
    let tasks = format!("/proc/{}/task", process.child.id());
    let is_so = |task: &Path| {
        let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(state))
    };
    while !fs::read_dir(&tasks).unwrap().all(|task| is_so(&task.unwrap().path())) {
        std::thread::yield_now();
    }
}
