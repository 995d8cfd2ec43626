//! Names and keys that are not made for locks (R36).

use std::time::Duration;

use tenure::blocking::block_on;
use tenure::{Error, Kind};
use tenure_testkit::Server;

use super::shared::{LONG, SOON, Shared, connect, median, pass, shared};

const NAMES: [&str; 9] =
    ["{tag}:x", "a{b", "a}b", "a{}b", "{}", "sp ace\r\n%25", "ключ/鍵", "tenure:{x}", "*[x]?"];

/// A lock with such a name is the same for both, and its waiters are woken.
#[test]
fn hostile_names_are_the_same_for_both() {
    let Some(Shared { java, tenure, .. }) = shared() else { return };
    let mut times = Vec::new();
    for name in NAMES {
        let guard = block_on(tenure.lock(name).acquire()).unwrap();
        assert_eq!(java.run("a", "try-lock", name, "0"), "false", "{name}");
        let waiter = java.ask("a", "lock", name, "");
        pass(Duration::from_millis(100));
        let begin = std::time::Instant::now();
        block_on(guard.release()).unwrap();
        times.push(waiter.answer().1.saturating_duration_since(begin));
        let lock = tenure.lock(name);
        let waiter = std::thread::spawn(move || block_on(lock.acquire_within(LONG)).unwrap());
        pass(Duration::from_millis(100));
        assert!(!waiter.is_finished(), "{name}");
        java.run("a", "unlock", name, "");
        drop(waiter.join().unwrap());
        // Read-write locks have keys for leases, whose names contain that of the lock.
        let reading = block_on(tenure.rwlock(name).read_within(LONG)).unwrap();
        assert_eq!(java.run("a", "try-write", name, "0"), "false", "{name}");
        block_on(reading.release()).unwrap();
        assert_eq!(java.run("a", "try-write", name, "0"), "true", "{name}");
        java.run("a", "unwrite", name, "");
    }
    assert!(median(times.clone()) < SOON, "{times:?}");
}

/// A key that is no lock is reported with a sentence, and nothing of it is changed; other locks are not affected.
#[test]
fn foreign_keys_are_refused_and_left_alone() {
    let server = Server::builder().on_port().start();
    let mut redis = server.connect().unwrap();
    redis.command(&["RPUSH", "list", "1"]).unwrap();
    redis.command(&["SET", "text", "hello"]).unwrap();
    redis.command(&["HSET", "map", "field", "value"]).unwrap();
    redis.command(&["SET", "number", "3"]).unwrap();
    let tenure = connect(&server.url());
    for name in ["list", "text", "map"] {
        for error in [
            block_on(tenure.lock(name).try_acquire()).map(drop).unwrap_err(),
            block_on(tenure.semaphore(name, 2).try_acquire()).map(drop).unwrap_err(),
            block_on(tenure.rwlock(name).try_read()).map(drop).unwrap_err(),
        ] {
            let is_known = matches!(error, Error::Mismatch { kind: Kind::Mutex, .. });
            assert!(
                is_known || error.to_string().contains("no lock of Redisson"),
                "{name}: {error}"
            );
        }
    }
    let error = block_on(tenure.lock("number").try_acquire()).unwrap_err();
    assert!(matches!(error, Error::Mismatch { kind: Kind::Semaphore, .. }), "{error}");
    drop(block_on(tenure.lock("good").acquire()).unwrap());
    let dump = |redis: &mut tenure_testkit::resp::Connection, command: &[&str]| {
        format!("{:?}", redis.command(command).unwrap())
    };
    assert!(dump(&mut redis, &["HLEN", "map"]).contains('1'));
    assert!(dump(&mut redis, &["LLEN", "list"]).contains('1'));
    let listed = block_on(tenure.list("", 10)).unwrap();
    assert!(listed.is_empty(), "{listed:?}");
}
