//! A user of the server with few rights.

use tenure::Tenure;
use tenure::blocking::block_on;
use tenure::engine::Severity;
use tenure_testkit::Server;
use tenure_testkit::resp::{Connection, Reply};

use super::shared::connect;

/// The rights that `docs/redisson.md` names.
const RIGHTS: [&str; 7] = [
    "~orders/*",
    "~*:rwlock_timeout:*",
    "~redisson_lock_token:*",
    "~tenure_*",
    "~tenure:*",
    "&redisson_*",
    "&tenure:redisson:*",
];

/// The URL of a user with these rights.
fn user(server: &Server, redis: &mut Connection, rights: &[&str]) -> String {
    let words = [&["ACL", "SETUSER", "app", "reset", "on", ">pw", "+@all"], rights].concat();
    assert_eq!(redis.command(&words).unwrap(), Reply::Simple("OK".into()));
    format!("redis://app:pw@127.0.0.1:{}", server.port().unwrap())
}

fn fenced(url: &str) -> Tenure {
    block_on(Tenure::builder().redisson_fenced().connect(url)).unwrap()
}

fn integer(redis: &mut Connection, words: &[&str]) -> i64 {
    match redis.command(words).unwrap() {
        Reply::Integer(number) => number,
        other => panic!("{words:?}: {other:?}"),
    }
}

/// A reader without the right to the key of its lease left `{mode: read}` without an expiry, which no writer got past, and which
/// could not be forced; permits that were taken and not noted never came back.
#[test]
fn a_request_that_lacks_a_right_leaves_nothing_behind() {
    let server = Server::builder().on_port().start();
    let mut redis = server.connect().unwrap();
    let admin = connect(&server.url());
    drop(block_on(admin.semaphore("orders/permits", 2).acquire()).unwrap());
    let lacks = |right: &str| RIGHTS.into_iter().filter(|it| *it != right).collect::<Vec<_>>();
    let forbids = |command: &'static str| [&RIGHTS[..], &[command]].concat();
    for rights in [
        lacks("~*:rwlock_timeout:*"),
        lacks("~redisson_lock_token:*"),
        lacks("~tenure_*"),
        forbids("-pexpire"),
        forbids("-hset"),
        forbids("-zadd"),
        forbids("-decrby"),
    ] {
        let url = user(&server, &mut redis, &rights);
        let (plain, fenced) = (connect(&url), fenced(&url));
        let refused = [
            block_on(plain.lock("orders/x").try_acquire()).is_err(),
            block_on(fenced.lock("orders/fenced").try_acquire()).is_err(),
            block_on(plain.rwlock("orders/rw").try_read()).is_err(),
            block_on(plain.rwlock("orders/written").try_write()).is_err(),
            block_on(plain.semaphore("orders/permits", 2).try_acquire()).is_err(),
        ];
        assert!(refused.contains(&true), "{rights:?}");
        drop((plain, fenced));
        for name in ["orders/x", "orders/fenced", "orders/rw", "orders/written"] {
            let left = integer(&mut redis, &["PTTL", name]);
            assert_ne!(left, -1, "{name} stays for ever, with {rights:?}");
            redis.command(&["DEL", name]).unwrap();
        }
        // At one moment: a hold that was granted is released in the background.
        let permits = "return redis.call('GET', KEYS[1]) + redis.call('HLEN', KEYS[2])";
        let keys = ["orders/permits", "tenure_permits:{orders/permits}"];
        let permits = integer(&mut redis, &["EVAL", permits, "2", keys[0], keys[1]]);
        assert_eq!(permits, 2, "free and held, with {rights:?}");
        redis.command(&["DEL", keys[1], "tenure_leases:{orders/permits}"]).unwrap();
        redis.command(&["SET", "orders/permits", "2"]).unwrap();
    }
}

/// R18: the rights that the documentation names are enough, and the doctor names each of them that is missing.
#[test]
fn the_doctor_names_the_rights_that_redissons_format_needs() {
    let server = Server::builder().on_port().start();
    let mut redis = server.connect().unwrap();
    let rights = |tenure: &Tenure| {
        let findings = block_on(tenure.checkup()).unwrap();
        findings.into_iter().find(|it| it.topic == "permissions").unwrap()
    };
    let url = user(&server, &mut redis, &RIGHTS);
    let tenure = fenced(&url);
    let found = rights(&tenure);
    assert_eq!(found.severity, Severity::Fine, "{found:?}");
    drop(block_on(tenure.lock("orders/x").acquire()).unwrap());
    drop(block_on(tenure.rwlock("orders/rw").read()).unwrap());
    drop(block_on(tenure.semaphore("orders/permits", 2).acquire()).unwrap());
    for right in &RIGHTS[1..] {
        let others: Vec<_> = RIGHTS.into_iter().filter(|it| it != right).collect();
        // Without this channel there is no connection.
        if *right != "&tenure:redisson:*" {
            user(&server, &mut redis, &others);
            let found = rights(&fenced(&url));
            assert_eq!(found.severity, Severity::Problem, "{right}");
            assert!(found.found.ends_with(&format!(" lacks {right}")), "{found:?}");
        }
    }
}
