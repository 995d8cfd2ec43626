//! Opening a store while others are in the way: it is bounded, names who it is, and keeps no thread.

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

/// A lone process is refused after a second. The rest is for a machine with a lot to do: ten that
/// waited one behind the other would take ten.
const SOON: Duration = Duration::from_secs(5);

/// Has the turn until it is killed.
pub(crate) fn keep_the_turn(folder: &Path) {
    let turn = File::options().write(true).open(folder.join("mutex")).unwrap();
    fcntl_lock(&turn, FlockOperation::LockExclusive).unwrap();
    println!("keeps it");
    pass(LONG * 9);
}

fn one_that_keeps_the_turn(folder: &Path) -> Process {
    start(folder, "pass through").expect("passed");
    let mut other = start(folder, "keep the turn");
    other.expect("keeps it");
    other
}

/// Rule 10: each waits for its own time, and not behind the others who wait.
#[test]
fn processes_that_open_a_stuck_store_are_refused_together() {
    let (_around, folder) = store();
    let other = one_that_keeps_the_turn(&folder);
    let begun = now();
    let mut openers: Vec<_> = (0..10).map(|_| start(&folder, "open in vain")).collect();
    for opener in &mut openers {
        let refused = opener.expect("refused");
        let name = format!("process {} stands in the middle", other.child.id());
        assert!(refused.contains(&name), "{refused}");
    }
    let took = begun.elapsed();
    println!("the last was refused after {took:?}");
    assert!(took < SOON, "{took:?}");
}

pub(crate) fn open_in_vain(folder: &Path) {
    let url = format!("local://{}", folder.display());
    println!("refused: {}", block_on(Tenure::connect(&url)).unwrap_err());
}

/// The same for the threads of one process; and other folders are not kept waiting by it.
#[test]
fn threads_that_open_a_stuck_store_are_refused_together() {
    let (around, folder) = store();
    let _other = one_that_keeps_the_turn(&folder);
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

/// Whoever connects can be interrupted: the call does not keep its thread, and goes on when it can.
#[test]
fn connecting_to_a_stuck_store_keeps_no_thread() {
    let (_around, folder) = store();
    let mut other = one_that_keeps_the_turn(&folder);
    let url = format!("local://{}", folder.display());
    let mut connecting = pin!(Tenure::connect(&url));
    let mut is_first = true;
    let connected = block_on(poll_fn(|context| {
        let polled = connecting.as_mut().poll(context);
        if std::mem::take(&mut is_first) {
            assert!(polled.is_pending(), "it has waited here");
            other.kill();
        }
        polled
    }));
    assert!(block_on(connected.unwrap().lock("x").try_acquire()).unwrap().is_some());
}

/// A file of the store that another program has locked, as a backup might.
#[test]
fn a_lock_on_another_file_keeps_nobody_out() {
    let (_around, folder) = store();
    drop(connect(&folder));
    let boot = File::open(folder.join("boot")).unwrap();
    flock(&boot, FlockOperation::LockExclusive).unwrap();
    let begun = now();
    let mut other = start(&folder, "pass through");
    other.expect("passed");
    assert!(begun.elapsed() < LONG);
}
