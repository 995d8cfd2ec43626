//! A process that is stopped in the middle of an operation, where it holds the store's mutex.

use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::blocking::block_on;
use crate::clock;
use crate::engine::local::LocalEngine;
use crate::engine::local::storage::transaction::Transaction;
use crate::engine::local::waiting::store_mutex::Patience;
use crate::{Error, Tenure};

const FOLDER: &str = "TENURE_STOPPED_FOLDER";
const LEASE: Duration = Duration::from_secs(5);

#[test]
#[ignore = "the other half of the test here, which runs it"]
fn the_stopped_process() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let engine = LocalEngine::open(folder).unwrap();
    let transaction = Transaction::begin(&engine.store, Patience::Long).unwrap();
    println!("begun");
    // Within the operation until the test closes the pipe.
    std::io::stdin().read_line(&mut String::new()).unwrap();
    transaction.commit().unwrap();
}

/// A process that is stopped in the middle of an operation, and its output.
fn stopped(folder: &Path) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["engine::local::tests::stopped::the_stopped_process", "--exact", "--ignored"]);
    child.args(["--nocapture"]).env(FOLDER, folder);
    child.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.contains("begun")));
    kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    let (_, status) =
        waitpid(Some(Pid::from_child(&child)), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped(), "{status:?}");
    (child, lines)
}

/// I9, rule 10: other operations are refused in time, with an error that names the process; a holder that cannot
/// renew is notified of its loss before its lease ends. When the process continues, so do they.
#[test]
fn a_stopped_process_blocks_no_other_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("t");
    let engine = LocalEngine::open(&folder).unwrap();
    let tenure = Tenure::builder().patience(Duration::ZERO).engine(engine).unwrap();
    let held = clock::now();
    let guard = block_on(tenure.lock("x").lease(LEASE).acquire()).unwrap();
    let (mut child, _lines) = stopped(&folder);

    let refused = block_on(tenure.lock("y").try_acquire()).unwrap_err();
    assert!(matches!(refused, Error::Unreachable { .. }), "{refused:?}");
    let sentence = format!("the store's mutex has been held by pid {} for", child.id());
    assert!(refused.to_string().contains(&sentence), "{refused}");
    assert!(block_on(tenure.lock("y").inspect()).is_err());
    block_on(guard.lost());
    let noticed = clock::now().since(held);
    assert!(noticed < LEASE, "notified after {noticed:?}");
    drop(guard);

    kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(block_on(tenure.lock("y").try_acquire()).unwrap().is_some());
}

const LOCKS: usize = 20;

/// I9: many waiters and releases do not delay the report of a loss.
#[test]
fn many_waiters_do_not_delay_the_report_of_a_loss() {
    let lease = Duration::from_secs(2);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("t");
    let connect = || Tenure::builder().engine(LocalEngine::open(&folder).unwrap()).unwrap();
    let (tenure, other) = (connect(), connect());
    let take = |tenure: &Tenure, name: String| {
        block_on(tenure.lock(name).lease(Duration::from_secs(60)).acquire()).unwrap()
    };
    let _theirs: Vec<_> = (0..LOCKS).map(|it| take(&other, format!("theirs/{it}"))).collect();
    let ours: Vec<_> = (0..LOCKS).map(|it| take(&tenure, format!("ours/{it}"))).collect();
    for number in 0..LOCKS {
        let lock = tenure.lock(format!("theirs/{number}"));
        std::thread::spawn(move || drop(block_on(lock.acquire_within(lease * 5))));
    }
    while block_on(other.list("theirs/", LOCKS)).unwrap().iter().any(|info| info.waiting == 0) {
        std::thread::yield_now();
    }
    let held = clock::now();
    let guard = block_on(tenure.lock("x").lease(lease).acquire()).unwrap();
    let (mut child, _lines) = stopped(&folder);
    let dropped = clock::now();
    drop(ours);
    let took = clock::now().since(dropped);
    assert!(took < Duration::from_millis(500), "{LOCKS} guards were dropped in {took:?}");
    block_on(guard.lost());
    // The last renewal may have been in flight at the deadline.
    let noticed = clock::now().since(held);
    assert!(noticed < lease + Duration::from_millis(60), "notified after {noticed:?}");
    kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
