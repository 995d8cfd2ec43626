//! Processes that are killed, and the holds that outlive them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use tenure::Handle;
use tenure::blocking::block_on;

use super::other::start;
use crate::{LONG, connect, now, pass, store, until_waiting};

#[test]
fn a_killed_holder_frees_its_lock_at_once() {
    let (_around, folder) = store();
    let tenure = connect(&folder);
    let mut other = start(&folder, "hold");
    other.expect("holds");
    assert!(block_on(tenure.lock("x").try_acquire()).unwrap().is_none());
    other.kill();
    assert!(block_on(tenure.lock("x").try_acquire()).unwrap().is_some());
}

#[test]
fn a_waiter_has_the_lock_of_a_killed_holder_at_once() {
    let (_around, folder) = store();
    let tenure = connect(&folder);
    let mut other = start(&folder, "hold");
    other.expect("holds");
    let waiting = std::thread::spawn({
        let lock = tenure.lock("x");
        move || {
            let guard = block_on(lock.acquire_within(LONG)).unwrap();
            (now(), guard)
        }
    });
    until_waiting(&tenure, 1);
    let killed = now();
    other.kill();
    let (granted, guard) = waiting.join().unwrap();
    let took = granted.duration_since(killed);
    println!("granted {took:?} after the kill");
    assert!(took < Duration::from_millis(200), "{took:?}");
    guard.ensure_held().unwrap();
}

/// The killed one got the lock by a hand-over of which the waiter behind it was not notified.
#[test]
fn a_waiter_behind_a_killed_waiter_is_served_at_once() {
    let (_around, folder) = store();
    let tenure = connect(&folder);
    let guard = block_on(tenure.lock("x").acquire()).unwrap();
    let mut first = start(&folder, "hold");
    until_waiting(&tenure, 1);
    let mut second = start(&folder, "hold");
    until_waiting(&tenure, 2);
    drop(guard);
    first.expect("holds");
    let killed = now();
    first.kill();
    second.expect("holds");
    let took = killed.elapsed();
    assert!(took < Duration::from_millis(500), "{took:?}");
}

#[test]
fn what_was_detached_or_counted_outlives_its_process() {
    let (_around, folder) = store();
    let tenure = connect(&folder);
    let mut other = start(&folder, "detach");
    let line = other.expect("handle");
    let handle: Handle = line.split_once("handle ").unwrap().1.parse().unwrap();
    other.expect("counted");
    other.kill();
    assert!(block_on(tenure.lock("x").try_acquire()).unwrap().is_none());
    block_on(tenure.renew(&handle)).unwrap();
    block_on(tenure.release(&handle)).unwrap();
    assert!(block_on(tenure.lock("x").try_acquire()).unwrap().is_some());
    block_on(tenure.latch("l", 1).wait_within(LONG)).unwrap();
}

#[test]
fn a_least_holding_time_outlasts_its_process() {
    let (_around, folder) = store();
    let mut other = start(&folder, "linger");
    other.expect("released");
    other.kill();
    assert!(block_on(connect(&folder).lock("x").try_acquire()).unwrap().is_none());
}

/// I1, between processes.
#[test]
fn no_count_is_lost_between_two_processes() {
    let (around, folder) = store();
    let number = around.path().join("number");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    fs::write(&number, "0").unwrap();
    let mut others = [start(&folder, "count"), start(&folder, "count")];
    for other in &mut others {
        println!("{}", other.expect("counted"));
    }
    assert_eq!(fs::read_to_string(&number).unwrap(), "2000");
}

/// More than there are locks, so that some processes wait.
const PROCESSES: usize = 5;

/// I7, I8: wherever a process is killed, the others continue, and no trace of it remains.
#[test]
fn kills_at_any_moment_wedge_nothing() {
    let (_around, folder) = store();
    let begin = || {
        let mut other = start(&folder, "hurry");
        other.expect("connected");
        other
    };
    let mut others: Vec<_> = (0..PROCESSES).map(|_| begin()).collect();
    let begun = now();
    for kill in 0_u32.. {
        // LMDB has 126 reader slots: if dead processes kept theirs, none would be left.
        if kill > 150 && (!is_long() || begun.elapsed() > LONG) {
            println!("{kill} kills");
            break;
        }
        // Delays that are spread over a whole operation.
        pass(Duration::from_micros(u64::from(kill.wrapping_mul(7919) % 20_000)));
        let victim = &mut others[kill as usize % PROCESSES];
        assert!(victim.child.try_wait().unwrap().is_none(), "it failed before kill {kill}");
        victim.kill();
        *victim = begin();
    }
    for other in &mut others {
        assert!(other.child.try_wait().unwrap().is_none(), "it failed");
    }
    drop(others);
    let tenure = connect(&folder);
    for number in 0..3 {
        let lock = tenure.lock(format!("x{number}"));
        let info = block_on(lock.inspect()).unwrap();
        assert!(info.holders.is_empty() && info.waiting == 0, "{info:?}");
        drop(block_on(lock.try_acquire()).unwrap().unwrap());
    }
    assert!(block_on(tenure.list("", 10)).unwrap().is_empty());
    let files = fs::read_dir(folder.join("clients")).unwrap().count();
    assert_eq!(files, 2, "only the files of the remaining client");
}

/// Set by `cargo xtask test --long`.
fn is_long() -> bool {
    std::env::var_os("TENURE_LONG").is_some()
}
