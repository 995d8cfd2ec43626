//! R30: locks that are shared with Redisson's own client, in Java processes.
//!
//! Starting a JVM takes seconds, so the tests of this program share a server and a process; those that kill one start their own.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests may read the clock")]

#[allow(dead_code, reason = "other tests stop processes as well")]
#[path = "common/process.rs"]
mod process;
mod redisson {
    mod books;
    mod cluster;
    mod fight;
    mod hostile;
    mod kills;
    mod kinds;
    mod links;
    mod lost;
    mod readers;
    mod rights;
    pub(crate) mod shared;
    mod transit;
}

use std::time::{Duration, Instant};

use tenure::blocking::block_on;
use tenure::{Error, Fence, Owner, Tenure};

use redisson::shared::{KEPT, LONG, SOON, Shared, is_long, median, pass, shared};
use tenure_testkit::resp::Reply;

/// R1: while one side holds the lock, the other does not get it.
#[test]
fn a_lock_of_java_and_of_tenure_is_one_lock() {
    let Some(Shared { java, tenure, .. }) = shared() else { return };
    java.run("a", "lock", "one", "");
    assert!(block_on(tenure.lock("one").try_acquire()).unwrap().is_none());
    let error = block_on(tenure.lock("one").acquire_within(Duration::from_secs(1))).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    java.run("a", "unlock", "one", "");
    let guard = block_on(tenure.lock("one").try_acquire()).unwrap().expect("Java has released it");
    assert_eq!(java.run("a", "try-lock", "one", "0"), "false");
    assert_eq!(guard.fence(), Fence::NONE, "an RLock has none");
    block_on(guard.release()).unwrap();
    assert_eq!(java.run("a", "try-lock", "one", "0"), "true");
    java.run("a", "unlock", "one", "");
}

/// R6: each side enters again, and the lock is free after the last exit.
#[test]
fn each_side_enters_again() {
    let Some(Shared { java, tenure, server }) = shared() else { return };
    java.run("a", "lock", "again", "");
    java.run("a", "lock", "again", "");
    assert_eq!(java.run("a", "entries", "again", ""), "2");
    java.run("a", "unlock", "again", "");
    assert!(block_on(tenure.lock("again").try_acquire()).unwrap().is_none());
    java.run("a", "unlock", "again", "");

    let lock = tenure.lock("again").owner(Owner::new());
    let (one, two) = (block_on(lock.acquire()).unwrap(), block_on(lock.acquire()).unwrap());
    let values = server.connect().unwrap().command(&["HVALS", "again"]).unwrap();
    let Reply::Array(Some(values)) = values else { panic!("{values:?}") };
    assert!(values.contains(&Reply::Bulk(Some(b"2".to_vec()))), "as Redisson counts: {values:?}");
    block_on(one.release()).unwrap();
    assert_eq!(java.run("a", "try-lock", "again", "0"), "false");
    block_on(two.release()).unwrap();
    assert_eq!(java.run("a", "try-lock", "again", "0"), "true");
    java.run("a", "unlock", "again", "");
}

/// R11: a waiter is woken by the other side's message, and does not poll.
#[test]
fn waiters_are_woken_by_the_other_side() {
    let Some(Shared { java, tenure, .. }) = shared() else { return };
    let (mut by_java, mut by_tenure) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        java.run("a", "lock", "woken", "");
        let (lock, waiting) = (tenure.lock("woken"), Instant::now());
        let waiter = std::thread::spawn(move || {
            let guard = block_on(lock.acquire()).unwrap();
            (Instant::now(), guard)
        });
        pass(Duration::from_millis(200));
        assert!(!waiter.is_finished(), "for {:?}", waiting.elapsed());
        let freed = java.ask("a", "unlock", "woken", "").answer().1;
        let (at, guard) = waiter.join().unwrap();
        by_java.push(at.saturating_duration_since(freed));

        let waiter = java.ask("b", "lock", "woken", "");
        pass(Duration::from_millis(200));
        assert_eq!(waiter.is_answered(), None);
        block_on(guard.release()).unwrap();
        let freed = Instant::now();
        by_tenure.push(waiter.answer().1.saturating_duration_since(freed));
        java.run("b", "unlock", "woken", "");
    }
    let (by_java, by_tenure) = (median(by_java), median(by_tenure));
    println!("woken by Java after {by_java:?}, by Tenure after {by_tenure:?}");
    assert!(by_java < SOON && by_tenure < SOON, "{by_java:?} and {by_tenure:?}");
}

/// R13: what one side takes away by force, the other has lost, and is notified of at its next renewal at the latest.
#[test]
fn force_works_on_the_other_side() {
    let Some(Shared { java, tenure, .. }) = shared() else { return };
    let guard = block_on(tenure.lock("force").lease(KEPT).acquire()).unwrap();
    assert_eq!(java.run("a", "force", "force", ""), "true");
    let begin = Instant::now();
    let signal = guard.lost_signal();
    block_on(signal.lost());
    assert!(guard.is_lost() && begin.elapsed() < KEPT, "{:?}", begin.elapsed());
    drop(guard);

    java.run("a", "lock", "force", "");
    let waiter = java.ask("b", "try-lock", "force", "20000");
    block_on(tenure.lock("force").force_release("a test")).unwrap();
    assert_eq!(waiter.answer().0, "true", "Java's waiter is notified");
    let info = block_on(tenure.lock("force").inspect()).unwrap();
    assert_eq!(info.forced.unwrap().owners.len(), 1);
    java.run("b", "unlock", "force", "");
}

/// R15: a token is larger than all before it, whichever side has them.
#[test]
fn fenced_tokens_grow_across_both() {
    let Some(shared) = shared() else { return };
    let Shared { java, server, .. } = shared;
    let fenced = block_on(Tenure::builder().redisson_fenced().connect(&server.url())).unwrap();
    let mut last = 0;
    for round in 0..10 {
        let token = if round % 2 == 0 {
            let token = java.run("a", "fence", "fence", "").parse().unwrap();
            java.run("a", "unlock", "fence", "");
            token
        } else {
            let guard = block_on(fenced.lock("fence").acquire()).unwrap();
            let again = block_on(fenced.lock("fence").owner(guard.owner()).acquire()).unwrap();
            assert_eq!(guard.fence(), again.fence(), "an entry is not another grant");
            guard.fence().value()
        };
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

/// R5: both watchdogs renew a lease of 30 s after 10 s, and the lock outlives it.
#[test]
fn both_watchdogs_keep_the_lock() {
    let Some(Shared { java, tenure, server }) = shared() else { return };
    java.run("a", "lock", "watched/java", "");
    java.run("a", "read", "watched/both", "");
    let _guard = block_on(tenure.lock("watched/tenure").acquire()).unwrap();
    let _reading = block_on(tenure.rwlock("watched/both").read()).unwrap();
    let mut connection = server.connect().unwrap();
    let mut left = |name: &str| match connection.command(&["PTTL", name]).unwrap() {
        Reply::Integer(left) => left,
        other => panic!("{other:?}"),
    };
    let names = ["watched/java", "watched/tenure", "watched/both"];
    for name in names {
        let mut before = left(name);
        assert!((1..=30_000).contains(&before), "{name}: {before}");
        let begin = Instant::now();
        while left(name) <= before {
            before = left(name);
            assert!(before > 0 && begin.elapsed() < LONG, "{name} is not renewed: {before}");
            pass(Duration::from_millis(20));
        }
    }
    if is_long() {
        pass(Duration::from_secs(35));
        assert!(names.iter().all(|name| left(name) > 0));
        assert!(block_on(tenure.lock("watched/java").try_acquire()).unwrap().is_none());
        assert_eq!(java.run("b", "try-lock", "watched/tenure", "0"), "false");
    }
    java.run("a", "unread", "watched/both", "");
    java.run("a", "unlock", "watched/java", "");
}
