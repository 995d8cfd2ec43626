//! Opening a store whose mutex is held: the wait is bounded, the error names the holder, and no thread is blocked.

use std::fs::File;
use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use tenure::blocking::block_on;
use tenure::{Error, Tenure};

use super::other::start;
use crate::process::Process;
use crate::{LONG, connect, now, pass, store};

/// A single process is refused after one second. The rest is for an overloaded machine: ten processes that waited one
/// after the other would take ten.
const SOON: Duration = Duration::from_secs(5);

/// Holds the store's mutex until it is killed.
pub(crate) fn hold_the_mutex(folder: &Path) {
    let mutex = File::options().write(true).open(folder.join("mutex")).unwrap();
    fcntl_lock(&mutex, FlockOperation::LockExclusive).unwrap();
    println!("holds it");
    pass(LONG * 9);
}

fn mutex_holder(folder: &Path) -> Process {
    start(folder, "pass through").expect("passed");
    let mut other = start(folder, "hold the mutex");
    other.expect("holds it");
    other
}

/// Rule 10: each process waits for its own timeout, and not after the others.
#[test]
fn processes_that_open_a_stuck_store_are_refused_together() {
    let (_around, folder) = store();
    let other = mutex_holder(&folder);
    let begun = now();
    let mut openers: Vec<_> = (0..10).map(|_| start(&folder, "open a stuck store")).collect();
    for opener in &mut openers {
        let refused = opener.expect("refused");
        let name = format!("has been held by pid {} for", other.child.id());
        assert!(refused.contains(&name), "{refused}");
    }
    let took = begun.elapsed();
    println!("the last was refused after {took:?}");
    assert!(took < SOON, "{took:?}");
}

pub(crate) fn open_a_stuck_store(folder: &Path) {
    let url = format!("local://{}", folder.display());
    println!("refused: {}", block_on(Tenure::connect(&url)).unwrap_err());
}

/// The same for the threads of one process; other folders are not blocked.
#[test]
fn threads_that_open_a_stuck_store_are_refused_together() {
    let (around, folder) = store();
    let _other = mutex_holder(&folder);
    let begun = now();
    std::thread::scope(|scope| {
        let open = || block_on(Tenure::connect(&format!("local://{}", folder.display())));
        let threads: Vec<_> = (0..10).map(|_| scope.spawn(open)).collect();
        let elsewhere = connect(&around.path().join("elsewhere"));
        assert!(block_on(elsewhere.lock("x").try_acquire()).unwrap().is_some());
        for thread in threads {
            let refused = thread.join().unwrap().unwrap_err();
            assert!(matches!(refused, Error::Connect { .. }), "{refused:?}");
        }
    });
    let took = begun.elapsed();
    assert!(took < SOON, "{took:?}");
}

/// Connecting can be cancelled: the call does not block its thread, and completes when it can.
#[test]
fn connecting_to_a_stuck_store_blocks_no_thread() {
    let (_around, folder) = store();
    let mut other = mutex_holder(&folder);
    let url = format!("local://{}", folder.display());
    let mut connecting = pin!(Tenure::connect(&url));
    let mut is_first = true;
    let connected = block_on(poll_fn(|context| {
        let polled = connecting.as_mut().poll(context);
        if std::mem::take(&mut is_first) {
            assert!(polled.is_pending(), "the call has blocked its thread");
            other.kill();
        }
        polled
    }));
    assert!(block_on(connected.unwrap().lock("x").try_acquire()).unwrap().is_some());
}

/// A file of the store that another program has locked, as a backup might.
#[test]
fn a_lock_on_another_file_blocks_no_process() {
    let (_around, folder) = store();
    drop(connect(&folder));
    let boot = File::open(folder.join("boot")).unwrap();
    flock(&boot, FlockOperation::LockExclusive).unwrap();
    let begun = now();
    let mut other = start(&folder, "pass through");
    other.expect("passed");
    assert!(begun.elapsed() < LONG);
}
