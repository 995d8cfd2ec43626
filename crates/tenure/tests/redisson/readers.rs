//! The leases of readers, and hashes that are no read-write locks (R27).

use std::time::{Duration, Instant};

use tenure::blocking::block_on;
use tenure::engine::ForceOutcome;
use tenure::{Guard, Owner, Tenure};
use tenure_testkit::Server;
use tenure_testkit::resp::{Connection, Reply};

use super::shared::{LONG, connect, pass};

/// The client of a Java process.
const JAVA: &str = "6b5dfc51-2d52-4dc1-ab0e-5b7f11d4f3a1";

struct Readers {
    server: Server,
    redis: Connection,
    tenure: Tenure,
}

impl Readers {
    fn start() -> Self {
        let server = Server::builder().on_port().start();
        let (redis, tenure) = (server.connect().unwrap(), connect(&server.url()));
        Self { server, redis, tenure }
    }

    fn reader(&self, owner: Owner, lease: u64) -> Guard {
        let lock = self.tenure.rwlock("rw").reader().owner(owner);
        block_on(lock.fixed_lease(Duration::from_secs(lease)).acquire()).unwrap()
    }

    /// In ms.
    fn left(&mut self) -> i64 {
        match self.redis.command(&["PTTL", "rw"]).unwrap() {
            Reply::Integer(left) => left,
            other => panic!("{other:?}"),
        }
    }

    /// A reader of Java's that renews, as Redisson's script does: with its own timeout for the whole lock, in ms.
    fn java_renews(&mut self, timeout: &str) {
        let field = format!("{JAVA}:77");
        self.redis.command(&["HSET", "rw", "mode", "read", &field, "1"]).unwrap();
        let key = format!("{{rw}}:{field}:rwlock_timeout:1");
        self.redis.command(&["SET", &key, "1", "PX", timeout]).unwrap();
        self.redis.command(&["PEXPIRE", "rw", timeout]).unwrap();
    }

    /// As many readers of Java's.
    fn crowd(&mut self, count: usize) {
        let script = "redis.call('HSET', 'rw', 'mode', 'read')
            for i = 1, ARGV[2] do
              redis.call('HSET', 'rw', ARGV[1] .. ':' .. i, 1)
              redis.call('SET', '{rw}:' .. ARGV[1] .. ':' .. i .. ':rwlock_timeout:1', 1, 'PX', 60000)
            end
            redis.call('PEXPIRE', 'rw', 60000)";
        let reply = self.redis.command(&["EVAL", script, "0", JAVA, &count.to_string()]).unwrap();
        assert_eq!(reply, Reply::Bulk(None));
    }

    fn is_written(&self) -> bool {
        let other = connect(&self.server.url());
        block_on(other.rwlock("rw").try_write()).unwrap().is_some()
    }
}

/// I2: which of two keys is the lease of which entry is not known. The first entry, with the short lease, left with the key of the
/// second; when another reader left as well, the lock ended with the short lease.
#[test]
fn a_reader_keeps_its_lease_when_another_entry_of_its_owner_ends() {
    let mut readers = Readers::start();
    let (owner, other) = (Owner::new(), readers.reader(Owner::new(), 30));
    let short = readers.reader(owner, 1);
    let long = readers.reader(owner, 60);
    block_on(short.release()).unwrap();
    block_on(other.release()).unwrap();
    assert!(readers.left() > 50_000, "{}", readers.left());
    pass(Duration::from_millis(1300));
    assert!(!readers.is_written() && long.ensure_held().is_ok());
    block_on(long.release()).unwrap();
    assert!(readers.is_written());
}

/// I2: the renewals of an entry with a short lease set the leases of all entries of its owner.
#[test]
fn a_reader_keeps_its_lease_when_another_entry_of_its_owner_is_renewed() {
    let mut readers = Readers::start();
    let (owner, other) = (Owner::new(), readers.reader(Owner::new(), 30));
    let long = readers.reader(owner, 60);
    let short = readers.tenure.rwlock("rw").reader().owner(owner).lease(Duration::from_secs(3));
    let short = block_on(short.acquire()).unwrap();
    // A renewal.
    pass(Duration::from_millis(1500));
    block_on(short.release()).unwrap();
    block_on(other.release()).unwrap();
    assert!(readers.left() > 50_000, "{}", readers.left());
    drop(long);
}

/// What the documentation says of leases: a Java reader that has renewed and crashed ends the lock after its own timeout, unless
/// a renewal of Tenure's comes first, which is after a third of the lease.
#[test]
fn a_renewed_lease_survives_a_java_reader_with_a_timeout_longer_than_its_third() {
    let mut readers = Readers::start();
    let lock = readers.tenure.rwlock("rw").reader().lease(Duration::from_millis(4500));
    let reading = block_on(lock.acquire()).unwrap();
    readers.java_renews("3000");
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        assert!(!readers.is_written() && reading.ensure_held().is_ok(), "{:?}", begin.elapsed());
        pass(Duration::from_millis(50));
    }
    block_on(reading.release()).unwrap();

    // The other way round: the documentation warns of it, and the reader is notified.
    let lock = readers.tenure.rwlock("rw").reader().lease(Duration::from_secs(9));
    let reading = block_on(lock.acquire()).unwrap();
    readers.java_renews("500");
    let writer = block_on(connect(&readers.server.url()).rwlock("rw").write_within(LONG)).unwrap();
    block_on(reading.lost());
    drop(writer);
}

/// I1: one of more readers than a script looks at leaves. The leases of the others were not read, and the lock was deleted.
#[test]
fn a_reader_that_leaves_very_many_others_does_not_end_their_lock() {
    let mut readers = Readers::start();
    readers.crowd(20_000);
    let reading = readers.reader(Owner::new(), 30);
    let lock = readers.tenure.rwlock("rw");
    assert!(block_on(lock.inspect()).unwrap().holding >= 20_001);
    block_on(reading.release()).unwrap();
    assert!(!readers.is_written() && readers.left() > 50_000);
    assert!(!block_on(lock.inspect()).unwrap().is_free());
}

/// R13: a forced release removes all readers, however many there are, in calls that do not block the server for long: after each
/// reader that it removed it had looked at all others, and it ended after 1,000.
#[test]
fn a_forced_release_removes_very_many_readers_in_portions() {
    let mut readers = Readers::start();
    readers.crowd(21_000);
    let reading = readers.reader(Owner::new(), 60);
    readers.redis.command(&["CONFIG", "RESETSTAT"]).unwrap();
    let lock = readers.tenure.rwlock("rw").writer();
    let forced = block_on(lock.force_release("a test")).unwrap();
    let ForceOutcome::Released(owners) = forced else { panic!("it was held") };
    assert_eq!(owners.len(), 21_001);
    let stats = readers.redis.command(&["INFO", "commandstats"]).unwrap();
    let Reply::Bulk(Some(stats)) = stats else { panic!("{stats:?}") };
    let stats = String::from_utf8(stats).unwrap();
    let count = |command: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")));
        let calls =
            line.and_then(|line| line.strip_prefix("calls=")?.split(',').next()?.parse().ok());
        calls.unwrap_or(0)
    };
    assert!(count("evalsha") >= 43, "500 in each call: {stats}");
    assert!(count("pttl") < 50_000, "each lease is looked at a few times at most: {stats}");
    block_on(reading.lost());
    assert!(readers.is_written());
}

/// A hash of an application, with a field `mode` as a read-write lock has it, is left alone: a reader gave it an expiry, and
/// deleted it when it left.
#[test]
fn a_hash_with_a_mode_that_does_not_expire_is_left_alone() {
    let Readers { server, mut redis, tenure } = Readers::start();
    for mode in ["read", "write"] {
        redis.command(&["HSET", "config", "mode", mode, "important", "data"]).unwrap();
        for refused in [
            block_on(tenure.rwlock("config").try_read()).map(drop),
            block_on(tenure.rwlock("config").read_within(LONG)).map(drop),
            block_on(tenure.rwlock("config").try_write()).map(drop),
            block_on(tenure.lock("config").try_acquire()).map(drop),
        ] {
            refused.unwrap_err();
        }
        let forced = block_on(tenure.lock("config").force_release("a test")).unwrap();
        assert_eq!(forced, ForceOutcome::NotHeld);
        assert_eq!(redis.command(&["HLEN", "config"]).unwrap(), Reply::Integer(2));
        assert_eq!(redis.command(&["PTTL", "config"]).unwrap(), Reply::Integer(-1));
    }
    drop(server);
}
