//! Real processes that are killed and stopped while they hold a lock or wait for it (R4, R12, R26).

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tenure::blocking::block_on;
use tenure::{Released, Tenure};
use tenure_testkit::Server;

const LONG: Duration = Duration::from_secs(20);

/// A process of its own that takes the lock "x", and says so.
struct Other {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Other {
    fn start(server: &Server) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["the_other_process", "--exact", "--ignored", "--nocapture"])
            .env("TENURE_OTHER_URL", server.url())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Reads until the process has said this.
    fn expect(&mut self, word: &str) {
        let mut lines = (&mut self.output).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains(word)), "it ended without saying {word}");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the other process does: takes the lock with a lease of a second, keeps it as long as it
/// can, and says how that ended.
#[test]
#[ignore = "the other half of the tests here, which run it"]
fn the_other_process() {
    let url = std::env::var("TENURE_OTHER_URL").unwrap();
    block_on(async {
        let tenure = Tenure::connect(&url).await.unwrap();
        println!("connected");
        let guard = tenure.lock("x").lease(Duration::from_secs(1)).acquire().await.unwrap();
        println!("holds");
        guard.lost().await;
        println!("lost");
        println!("{:?}", guard.release().await.unwrap());
    });
}

fn connect(server: &Server) -> Tenure {
    block_on(Tenure::connect(&server.url())).unwrap()
}

/// R4: kill -9 leaves the lease to end, and the waiter asks by itself.
#[test]
fn a_killed_holder_frees_its_lock_when_its_lease_ends() {
    let server = Server::start();
    let tenure = connect(&server);
    let mut other = Other::start(&server);
    other.expect("holds");
    assert!(block_on(tenure.lock("x").try_acquire()).unwrap().is_none());
    other.signal(Signal::KILL);
    drop(block_on(tenure.lock("x").acquire_within(Duration::from_secs(5))).unwrap());
}

/// I3, I9, R26: stopped past its lease, a process learns at once that it lost the lock, and takes
/// nothing away from the one who has it now.
#[test]
fn a_stopped_holder_learns_its_loss_and_harms_nobody() {
    let server = Server::start();
    let tenure = connect(&server);
    let mut other = Other::start(&server);
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

/// R12, I7: waiters that are killed are passed over as soon as the server knows.
#[test]
fn killed_waiters_do_not_hold_up_the_queue() {
    let server = Server::start();
    let tenure = connect(&server);
    let guard = block_on(tenure.lock("x").acquire()).unwrap();
    let wait_for = |count| {
        while block_on(tenure.lock("x").inspect()).unwrap().waiting != count {
            std::thread::yield_now();
        }
    };
    let mut others: Vec<_> = (1..=4)
        .map(|count| {
            let other = Other::start(&server);
            wait_for(count);
            other
        })
        .collect();
    let mut last = others.pop().unwrap();
    others.iter().for_each(|other| other.signal(Signal::KILL));
    drop(others);
    drop(guard);
    last.expect("holds");
}
