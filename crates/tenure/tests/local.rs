//! The local engine among real processes, which are killed.

#![cfg(feature = "local")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "local/folder.rs"]
mod folder;

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tenure::blocking::block_on;
use tenure::{Handle, Tenure};

const LONG: Duration = Duration::from_secs(20);

/// A process of its own that does one of the parts below, and says how far it is.
struct Other {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Other {
    fn start(folder: &Path, part: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["the_other_process", "--exact", "--ignored", "--nocapture"])
            .env("TENURE_OTHER_FOLDER", folder)
            .env("TENURE_OTHER_PART", part)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Reads until the process has said this, and returns the line.
    fn expect(&mut self, word: &str) -> String {
        let mut lines = (&mut self.output).lines().map_while(Result::ok);
        let found = lines.find(|line| line.contains(word));
        found.unwrap_or_else(|| panic!("it ended without saying {word}"))
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "the other half of the tests here, which run it"]
fn the_other_process() {
    let folder = std::env::var("TENURE_OTHER_FOLDER").unwrap();
    let tenure = connect(Path::new(&folder));
    match std::env::var("TENURE_OTHER_PART").unwrap().as_str() {
        "hold" => hold(&tenure),
        "detach" => detach(&tenure),
        "linger" => linger(&tenure),
        "count" => count(&tenure, Path::new(&folder)),
        "hurry" => hurry(&tenure),
        other => panic!("{other} is no part"),
    }
}

/// Takes the lock with a long lease, and keeps it.
fn hold(tenure: &Tenure) {
    println!("connected");
    let guard = block_on(tenure.lock("x").lease(Duration::from_secs(60)).acquire()).unwrap();
    println!("holds");
    block_on(guard.lost());
    println!("lost");
}

fn detach(tenure: &Tenure) {
    let guard = block_on(tenure.lock("x").acquire()).unwrap();
    println!("handle {}", guard.detach().unwrap());
    block_on(tenure.latch("l", 1).count_down()).unwrap();
    println!("counted");
    hold(tenure);
}

fn linger(tenure: &Tenure) {
    let lock = tenure.lock("x").at_least(Duration::from_secs(60));
    block_on(block_on(lock.acquire()).unwrap().release()).unwrap();
    println!("released");
}

/// Adds one to a number in a file, a thousand times, each time under the lock.
fn count(tenure: &Tenure, folder: &Path) {
    let file = folder.join("../number");
    let started = now();
    for _ in 0..1000 {
        let guard = block_on(tenure.lock("x").acquire()).unwrap();
        let number: u64 = fs::read_to_string(&file).unwrap().parse().unwrap();
        fs::write(&file, (number + 1).to_string()).unwrap();
        block_on(guard.release()).unwrap();
    }
    println!("counted in {:?}", started.elapsed());
}

/// Takes and releases locks as fast as it can, and checks that it is alone.
fn hurry(tenure: &Tenure) {
    println!("connected");
    for turn in 0_u64.. {
        let lock = tenure.lock(format!("x{}", turn % 3));
        let guard = block_on(lock.acquire_within(LONG)).unwrap();
        let holders = block_on(lock.inspect()).unwrap().holders;
        assert_eq!(holders.len(), 1);
        assert_eq!(holders[0].owner, guard.owner());
        block_on(guard.release()).unwrap();
    }
}

fn store() -> (TempDir, std::path::PathBuf) {
    let around = tempfile::tempdir().unwrap();
    let folder = around.path().join("locks");
    (around, folder)
}

fn connect(folder: &Path) -> Tenure {
    block_on(Tenure::connect(&format!("local://{}", folder.display()))).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "a test measures time")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn a_killed_holder_frees_its_lock_at_once() {
    let (_around, folder) = store();
    let tenure = connect(&folder);
    let mut other = Other::start(&folder, "hold");
    other.expect("holds");
    assert!(block_on(tenure.lock("x").try_acquire()).unwrap().is_none());
    other.kill();
    assert!(block_on(tenure.lock("x").try_acquire()).unwrap().is_some());
}

#[test]
fn a_waiter_has_the_lock_of_a_killed_holder_at_once() {
    let (_around, folder) = store();
    let tenure = connect(&folder);
    let mut other = Other::start(&folder, "hold");
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

/// The one in between got the lock by a hand-over that nobody behind it was told of.
#[test]
fn a_waiter_behind_a_killed_waiter_is_served_at_once() {
    let (_around, folder) = store();
    let tenure = connect(&folder);
    let guard = block_on(tenure.lock("x").acquire()).unwrap();
    let mut first = Other::start(&folder, "hold");
    until_waiting(&tenure, 1);
    let mut second = Other::start(&folder, "hold");
    until_waiting(&tenure, 2);
    drop(guard);
    first.expect("holds");
    let killed = now();
    first.kill();
    second.expect("holds");
    let took = killed.elapsed();
    assert!(took < Duration::from_millis(500), "{took:?}");
}

fn until_waiting(tenure: &Tenure, count: usize) {
    while block_on(tenure.lock("x").inspect()).unwrap().waiting != count {
        std::thread::yield_now();
    }
}

#[test]
fn what_was_detached_or_counted_outlives_its_process() {
    let (_around, folder) = store();
    let tenure = connect(&folder);
    let mut other = Other::start(&folder, "detach");
    let said = other.expect("handle");
    let handle: Handle = said.split_once("handle ").unwrap().1.parse().unwrap();
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
    let mut other = Other::start(&folder, "linger");
    other.expect("released");
    other.kill();
    assert!(block_on(connect(&folder).lock("x").try_acquire()).unwrap().is_none());
}

/// I1, among processes.
#[test]
fn no_count_is_lost_between_two_processes() {
    let (around, folder) = store();
    let number = around.path().join("number");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    fs::write(&number, "0").unwrap();
    let mut others = [Other::start(&folder, "count"), Other::start(&folder, "count")];
    for other in &mut others {
        println!("{}", other.expect("counted"));
    }
    assert_eq!(fs::read_to_string(&number).unwrap(), "2000");
}

/// I7, I8: wherever a process is killed, the others go on, and nothing is left of it.
#[test]
fn kills_at_any_moment_wedge_nothing() {
    let (_around, folder) = store();
    let start = || {
        let mut other = Other::start(&folder, "hurry");
        other.expect("connected");
        other
    };
    let mut others: Vec<_> = (0..3).map(|_| start()).collect();
    for kill in 0..100_u32 {
        // Moments that are spread over the whole of an operation.
        pass(Duration::from_micros(u64::from(kill.wrapping_mul(7919) % 20_000)));
        let victim = &mut others[kill as usize % 3];
        assert!(victim.child.try_wait().unwrap().is_none(), "it failed before kill {kill}");
        victim.kill();
        *victim = start();
    }
    for other in &mut others {
        assert!(other.child.try_wait().unwrap().is_none(), "it failed");
    }
    drop(others);
    let tenure = connect(&folder);
    for number in 0..3 {
        drop(block_on(tenure.lock(format!("x{number}")).try_acquire()).unwrap().unwrap());
    }
    assert!(block_on(tenure.list("", 10)).unwrap().is_empty());
    let files = fs::read_dir(folder.join("clients")).unwrap().count();
    assert_eq!(files, 2, "only the files of the client that is left");
}

#[expect(clippy::disallowed_methods, reason = "only time is to pass")]
fn pass(time: Duration) {
    std::thread::sleep(time);
}
