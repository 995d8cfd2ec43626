//! What Tenure keeps beside Redisson's keys: the holders of permits, the entries of readers, and who has counted a latch down.

use std::time::Duration;

use tenure::blocking::block_on;
use tenure::engine::ForceOutcome;
use tenure::{Error, Fence, Kind, Owner, Tenure};
use tenure_testkit::Server;
use tenure_testkit::resp::{Connection, Reply};

use super::shared::{LONG, connect, pass};

fn number(redis: &mut Connection, key: &str) -> i64 {
    let Reply::Bulk(Some(text)) = redis.command(&["GET", key]).unwrap() else { return 0 };
    String::from_utf8(text).unwrap().parse().unwrap()
}

/// I4: a client that asks for fences gets them, also if the URL names the protocol. It was silently without.
#[test]
fn fences_that_the_builder_asks_for_are_not_dropped_by_the_url() {
    let server = Server::builder().on_port().start();
    let url = format!("{}?protocol=redisson", server.url());
    let tenure = block_on(Tenure::builder().redisson_fenced().connect(&url)).unwrap();
    assert_ne!(block_on(tenure.lock("x").acquire()).unwrap().fence(), Fence::NONE);
}

/// R15: a token is a 64-bit number for Java. As a number of Lua's, it was rounded beyond 2^53, and granted twice.
#[test]
fn tokens_are_exact_beyond_the_numbers_of_lua() {
    let server = Server::builder().on_port().start();
    let mut redis = server.connect().unwrap();
    let first = 1_u64 << 53;
    redis.command(&["SET", "redisson_lock_token:{x}", &first.to_string()]).unwrap();
    let tenure = block_on(Tenure::builder().redisson_fenced().connect(&server.url())).unwrap();
    for token in first + 1..first + 4 {
        let guard = block_on(tenure.lock("x").acquire_within(LONG)).unwrap();
        assert_eq!(guard.fence().value(), token);
        let holders = block_on(tenure.lock("x").inspect()).unwrap().holders;
        assert_eq!(holders[0].fence, guard.fence());
        block_on(guard.release()).unwrap();
    }
}

/// R13, R14: a transaction of Redisson's has another id than a client, and a thread may have any number. Such holders kept others
/// out, and were neither shown nor forced to release.
#[test]
fn every_holder_of_redissons_is_shown_and_forced() {
    let server = Server::builder().on_port().start();
    let (tenure, mut redis) = (connect(&server.url()), server.connect().unwrap());
    let fields = ["6b5dfc51-2d52-4dc1-ab0e-5b7f11d4f3a1:-5", "0123456789abcdef0123456789abcdef:12"];
    for field in fields {
        redis.command(&["HSET", field, field, "1"]).unwrap();
        redis.command(&["PEXPIRE", field, "60000"]).unwrap();
        let lock = tenure.lock(field);
        assert!(block_on(lock.try_acquire()).unwrap().is_none());
        assert_eq!(block_on(lock.inspect()).unwrap().holders.len(), 1, "{field}");
        let forced = block_on(lock.force_release("a test")).unwrap();
        assert!(matches!(forced, ForceOutcome::Released(owners) if owners.len() == 1));
        drop(block_on(lock.try_acquire()).unwrap().unwrap());
    }
}

/// I1, I5: `x` and `{x}` are two names, and Redisson derives the same channels from both. The holders that Tenure keeps were
/// shared: a permit of the one came back to the other, and an entry of the one ended with that of the other.
#[test]
fn locks_whose_names_differ_by_braces_are_two_locks() {
    let server = Server::builder().on_port().start();
    let (tenure, mut redis) = (connect(&server.url()), server.connect().unwrap());
    let owner = Owner::new();
    let permit = |name| {
        block_on(tenure.semaphore(name, 1).permits(1).owner(owner).acquire_within(LONG)).unwrap()
    };
    let (one, other) = (permit("x"), permit("{x}"));
    block_on(one.release()).unwrap();
    assert_eq!((number(&mut redis, "x"), number(&mut redis, "{x}")), (1, 0));
    let listed = block_on(tenure.list("", 10)).unwrap();
    let names: Vec<_> = listed.iter().map(|lock| lock.name.as_str()).collect();
    assert_eq!(names, ["{x}"]);
    block_on(other.release()).unwrap();
    // A client that crashed with a permit of `y`.
    let lock = tenure.semaphore("y", 1).permits(1).fixed_lease(Duration::from_millis(300));
    std::mem::forget(block_on(lock.acquire()).unwrap());
    redis.command(&["SET", "{y}", "5"]).unwrap();
    pass(Duration::from_millis(500));
    block_on(permit("{y}").release()).unwrap();
    assert_eq!((number(&mut redis, "y"), number(&mut redis, "{y}")), (0, 5));
    block_on(permit("y").release()).unwrap();
    assert_eq!(number(&mut redis, "y"), 1);

    let write = |name| block_on(tenure.rwlock(name).writer().owner(owner).acquire()).unwrap();
    let entered = [write("rw"), write("{rw}"), write("rw"), write("{rw}")];
    for guard in entered {
        block_on(guard.release()).unwrap();
    }
    for name in ["rw", "{rw}"] {
        assert_eq!(redis.command(&["EXISTS", name]).unwrap(), Reply::Integer(0), "{name}");
    }
}

/// R24: a semaphore and a latch are both a number. A count took a permit that was free, and a request for a permit counted a
/// latch down.
#[test]
fn a_semaphore_and_a_latch_of_one_name_are_distinguished() {
    let server = Server::builder().on_port().start();
    let (tenure, mut redis) = (connect(&server.url()), server.connect().unwrap());
    let held = block_on(tenure.semaphore("s", 2).acquire()).unwrap();
    for error in [
        block_on(tenure.latch("s", 1).count_down()).unwrap_err(),
        block_on(tenure.latch("s", 1).set_count()).unwrap_err(),
        block_on(tenure.latch("s", 1).wait_within(LONG)).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Mismatch { kind: Kind::Semaphore, .. }), "{error:?}");
    }
    assert_eq!(number(&mut redis, "s"), 1);
    block_on(held.release()).unwrap();

    let latch = tenure.latch("l", 2);
    block_on(latch.set_count()).unwrap();
    let error = block_on(tenure.semaphore("l", 2).try_acquire()).unwrap_err();
    assert!(matches!(error, Error::Mismatch { kind: Kind::Latch, .. }), "{error:?}");
    assert_eq!(block_on(latch.inspect()).unwrap().kind, Some(Kind::Latch));
    // A latch of Java's is known once a client of Tenure's has counted.
    redis.command(&["SET", "java", "2"]).unwrap();
    block_on(tenure.latch("java", 2).count_down()).unwrap();
    let error = block_on(tenure.semaphore("java", 2).acquire_within(LONG)).unwrap_err();
    assert!(matches!(error, Error::Mismatch { kind: Kind::Latch, .. }), "{error:?}");
    assert_eq!((number(&mut redis, "l"), number(&mut redis, "java")), (2, 1));
    // A latch that is open leaves the name to others.
    block_on(tenure.latch("java", 2).count_down()).unwrap();
    drop(block_on(tenure.semaphore("java", 2).acquire()).unwrap());
}

/// I5: an owner counts once in each round, also if Java ends a round and begins the next.
#[test]
fn an_owner_counts_again_when_a_latch_is_set_anew() {
    let server = Server::builder().on_port().start();
    let (tenure, mut redis) = (connect(&server.url()), server.connect().unwrap());
    let (latch, owner) = (tenure.latch("l", 3), Owner::new());
    let count = || {
        for _ in 0..2 {
            block_on(latch.count_down_as(owner)).unwrap();
        }
        assert_eq!(block_on(latch.count()).unwrap(), 2, "once");
    };
    block_on(latch.set_count()).unwrap();
    count();
    // Java counts the rest.
    redis.command(&["DEL", "l"]).unwrap();
    block_on(latch.set_count()).unwrap();
    count();
    // Java begins the next round as well.
    redis.command(&["DEL", "l"]).unwrap();
    redis.command(&["SET", "l", "3"]).unwrap();
    count();
    redis.command(&["DEL", "l"]).unwrap();
    block_on(latch.wait_within(LONG)).unwrap();
}
