//! Forked children: a copy of the memory, and none of the parent's locks (I1, I3).

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "fork/child.rs"]
mod child;
#[path = "common/process.rs"]
#[allow(dead_code, reason = "the processes of these tests end by themselves")]
mod process;

use std::time::Duration;

use process::{Process, part, this_program};
use tenure::blocking::block_on;
use tenure::{Error, Owner, Released, Tenure, WhyLost};
use tenure_testkit::Server;

/// The store of the process that forks.
const URL: &str = "TENURE_TEST_FORK_URL";

/// Runs an ignored test of this program in a process of its own, which forks.
fn run(test: &str, url: &str) {
    let mut program = this_program();
    program.env(URL, url);
    let mut process = Process::start(part(&mut program, test));
    process.expect("all is well");
}

fn url() -> String {
    std::env::var(URL).unwrap()
}

/// I1: two children that connect after the fork are two owners, and two clients.
#[test]
fn children_that_connect_are_different_owners() {
    let server = Server::start();
    run("children_connect", &server.url());
    let folder = tempfile::tempdir().unwrap();
    run("children_connect", &format!("local://{}", folder.path().join("store").display()));
}

#[test]
#[ignore = "run by another test"]
fn children_connect() {
    // The parent has made owners, too: its children continue from its counter.
    let of_parent = [Owner::new(), Owner::of_thread()];
    let acquire = |is_first| {
        move || {
            assert!(!of_parent.contains(&Owner::of_thread()), "its thread has another owner");
            let tenure = block_on(Tenure::connect(&url())).unwrap();
            let lock = tenure.lock("x").reentrant().blocking();
            let guard = lock.try_acquire().unwrap();
            assert_eq!(guard.is_some(), is_first, "one of the two has it");
            if let Some(guard) = guard {
                guard.detach().unwrap();
            }
        }
    };
    child::fork(acquire(true));
    child::fork(acquire(false));
    println!("all is well");
}

/// I3: a child that uses an inherited client gets an error, and a guard that it drops stays the parent's.
#[test]
fn a_child_touches_nothing_of_its_parent() {
    let server = Server::start();
    run("child_touches_nothing", &server.url());
    run("child_touches_nothing", "memory:");
    let folder = tempfile::tempdir().unwrap();
    run("child_touches_nothing", &format!("local://{}", folder.path().join("store").display()));
}

#[test]
#[ignore = "run by another test"]
fn child_touches_nothing() {
    let tenure = block_on(Tenure::connect(&url())).unwrap();
    let guard = block_on(tenure.lock("x").acquire()).unwrap();
    let released = block_on(tenure.lock("y").acquire()).unwrap();
    let detached = block_on(tenure.lock("z").acquire()).unwrap();
    let handle = block_on(block_on(tenure.lock("h").acquire()).unwrap().detach()).unwrap();
    let counted = block_on(tenure.lock("c").owner(Owner::new()).count_locally().acquire()).unwrap();
    let mine = [guard.fence(), released.fence()];
    let parents = (tenure, [guard, released, detached, counted]);
    let parents = child::fork_with(parents, |(tenure, [guard, released, detached, counted])| {
        assert_eq!(guard.ensure_held().unwrap_err().why(), WhyLost::Forked);
        assert_eq!(block_on(guard.lost()).why(), WhyLost::Forked);
        assert!(matches!(block_on(guard.renew()), Err(Error::Forked)));
        assert!(matches!(block_on(released.release()), Err(Error::Forked)));
        assert!(matches!(block_on(detached.detach()), Err(Error::Forked)));
        let lock = tenure.lock("other");
        assert!(matches!(block_on(lock.try_acquire()), Err(Error::Forked)));
        assert!(matches!(block_on(lock.acquire()), Err(Error::Forked)));
        assert!(matches!(block_on(lock.inspect()), Err(Error::Forked)));
        assert!(matches!(block_on(tenure.lock("x").force_release("no")), Err(Error::Forked)));
        assert!(matches!(block_on(tenure.list("", 10)), Err(Error::Forked)));
        assert!(matches!(block_on(tenure.renew(&handle)), Err(Error::Forked)));
        assert!(matches!(block_on(tenure.release(&handle)), Err(Error::Forked)));
        assert!(!tenure.health().is_well());
        assert!(!block_on(tenure.flush(Duration::from_secs(5))));
        drop((guard, counted, tenure));
    });
    in_the_parent(parents, mine);
}

/// I3: a child that the C library does not know of is detected, too.
#[test]
fn a_child_of_a_bare_system_call_is_noticed() {
    run("child_of_system_call", "memory:");
}

#[test]
#[ignore = "run by another test"]
fn child_of_system_call() {
    let tenure = block_on(Tenure::connect(&url())).unwrap();
    let guard = block_on(tenure.lock("x").acquire()).unwrap();
    let (owner, of_thread) = (Owner::new(), Owner::of_thread());
    let guard = child::fork_unnoticed(guard, |guard| {
        assert!(guard.ensure_held().is_err_and(|lost| lost.why() == WhyLost::Forked));
        assert!(Owner::of_thread() != of_thread && Owner::new() != owner);
        std::mem::forget(guard);
    });
    guard.ensure_held().unwrap();
    println!("all is well");
}

fn in_the_parent(parents: (Tenure, [tenure::Guard; 4]), fences: [tenure::Fence; 2]) {
    let (tenure, guards) = parents;
    // The connection is its own, and works.
    for (guard, fence) in guards.iter().zip(fences) {
        let info = block_on(tenure.lock(guard.name()).inspect()).unwrap();
        assert_eq!(info.holders[0].fence, fence);
    }
    for guard in guards {
        block_on(guard.renew()).unwrap();
        assert_eq!(block_on(guard.release()).unwrap(), Released::Now);
    }
    assert!(tenure.health().is_well());
    drop(block_on(tenure.lock("after").acquire_within(Duration::from_secs(10))).unwrap());
    println!("all is well");
}
