//! Read-write locks, semaphores and latches of both sides (R27).

use std::time::Duration;

use tenure::Owner;
use tenure::blocking::block_on;

use super::shared::{LONG, Shared, pass, shared};

#[test]
fn readers_and_writers_of_both_exclude_each_other() {
    let Some(Shared { java, tenure, .. }) = shared() else { return };
    let lock = tenure.rwlock("rw");
    java.run("a", "read", "rw", "");
    let reading = block_on(lock.read()).unwrap();
    assert_eq!(block_on(lock.inspect()).unwrap().holders.len(), 2);
    assert_eq!(java.run("b", "try-write", "rw", "0"), "false");
    java.run("a", "unread", "rw", "");
    assert_eq!(java.run("b", "try-write", "rw", "0"), "false", "Tenure still reads");
    let writer = java.ask("b", "write", "rw", "");
    pass(Duration::from_millis(200));
    assert_eq!(writer.is_answered(), None);
    block_on(reading.release()).unwrap();
    assert_eq!(writer.answer().0, "ok");
    assert!(block_on(lock.try_read()).unwrap().is_none());
    assert!(block_on(lock.try_write()).unwrap().is_none());
    let waiter = {
        let lock = lock.clone();
        std::thread::spawn(move || block_on(lock.write_within(LONG)).unwrap())
    };
    pass(Duration::from_millis(200));
    java.run("b", "unwrite", "rw", "");
    let writing = waiter.join().unwrap();
    assert_eq!(java.run("a", "try-read", "rw", "0"), "false");
    let reader = java.ask("a", "read", "rw", "");
    let reading = block_on(writing.downgrade());
    assert_eq!(reader.answer().0, "ok", "a writer that becomes a reader lets Java's readers in");
    block_on(reading.release()).unwrap();
    java.run("a", "unread", "rw", "");
    drop(block_on(lock.write_within(LONG)).unwrap());
}

/// A reader that has entered several times, on each side, and the leases of its entries.
#[test]
fn readers_of_both_enter_again() {
    let Some(Shared { java, tenure, .. }) = shared() else { return };
    let lock = tenure.rwlock("rw/again");
    let owner = Owner::new();
    block_on(owner.scope(async {
        let one = lock.read().await.unwrap();
        let two = lock.read().await.unwrap();
        java.run("a", "read", "rw/again", "");
        java.run("a", "read", "rw/again", "");
        one.release().await.unwrap();
        java.run("a", "unread", "rw/again", "");
        java.run("a", "unread", "rw/again", "");
        assert_eq!(java.run("b", "try-write", "rw/again", "0"), "false", "one entry is left");
        two.release().await.unwrap();
    }));
    assert_eq!(java.run("b", "try-write", "rw/again", "0"), "true");
    java.run("b", "unwrite", "rw/again", "");
}

#[test]
fn permits_and_counts_are_shared() {
    let Some(Shared { java, tenure, .. }) = shared() else { return };
    assert_eq!(java.run("a", "set-permits", "permits", "3"), "true");
    let semaphore = tenure.semaphore("permits", 3);
    java.run("a", "acquire", "permits", "2");
    let one = block_on(semaphore.acquire()).unwrap();
    assert!(block_on(semaphore.try_acquire()).unwrap().is_none());
    assert_eq!(block_on(semaphore.available()).unwrap(), 0);
    let waiter = java.ask("b", "acquire", "permits", "1");
    pass(Duration::from_millis(200));
    block_on(one.release()).unwrap();
    assert_eq!(waiter.answer().0, "ok");
    let waiter = {
        let semaphore = semaphore.clone();
        std::thread::spawn(move || block_on(semaphore.acquire_within(LONG)).unwrap())
    };
    pass(Duration::from_millis(200));
    java.run("a", "release", "permits", "1");
    block_on(waiter.join().unwrap().release()).unwrap();
    assert_eq!(java.run("a", "available", "permits", ""), "1");
    assert_eq!(block_on(semaphore.available()).unwrap(), 1);

    assert_eq!(java.run("a", "set-count", "count", "2"), "true");
    let latch = tenure.latch("count", 2);
    assert_eq!(block_on(latch.count()).unwrap(), 2);
    let waiter = java.ask("b", "await", "count", "20000");
    block_on(latch.count_down()).unwrap();
    let waiting = {
        let latch = latch.clone();
        std::thread::spawn(move || block_on(latch.wait_within(LONG)).unwrap())
    };
    pass(Duration::from_millis(200));
    assert!(!waiting.is_finished() && waiter.is_answered().is_none());
    java.run("a", "count-down", "count", "");
    waiting.join().unwrap();
    assert_eq!(waiter.answer().0, "true");
    block_on(latch.set_count()).unwrap();
    assert_eq!(java.run("a", "set-count", "count", "2"), "false", "Tenure has set it");
}

/// What Redisson's own semaphores do not do: Java's waiter gets the permits of a Tenure client that has crashed.
#[test]
fn java_gets_the_permits_of_a_crashed_client() {
    use std::sync::Arc;
    use tenure::engine::{AcquireRequest, Acquired, Engine, RedisEngine};
    use tenure::{About, Entry, Kind, Lease, LockName, Shape};

    let Some(Shared { java, tenure, server }) = shared() else { return };
    let engine =
        block_on(RedisEngine::connect(&format!("{}?protocol=redisson", server.url()))).unwrap();
    let crashed = AcquireRequest {
        name: LockName::new("crashed").unwrap(),
        entry: Entry { owner: Owner::new(), number: 0 },
        shape: Shape::new(Kind::Semaphore, 2, 2).unwrap(),
        lease: Lease::new(Duration::from_millis(500)).unwrap(),
        about: Arc::new(About::this_process()),
        queue: None,
        proposal: None,
    };
    assert!(matches!(block_on(engine.acquire(crashed)).unwrap(), Acquired::Granted(_)));
    let waiter = java.ask("a", "acquire", "crashed", "1");
    // Another client of Tenure's waits as well, and so settles the semaphore.
    drop(block_on(tenure.semaphore("crashed", 2).acquire_within(LONG)).unwrap());
    assert_eq!(waiter.answer().0, "ok");
}
