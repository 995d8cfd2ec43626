//! Keys under Tenure's names that Tenure did not write, and a server that is out of memory: an error for the lock
//! concerned, and no effect on the others. I6, I9.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tenure::engine::{AcquireRequest, Acquired, Engine, RedisEngine};
use tenure::{About, Entry, Error, Fallback, Kind, Lease, LockName, Owner, Shape, Tenure, WhyLost};
use tenure_testkit::Server;

use super::fixture::{LONG, behind_proxy, command, connect, ms, pass, until};

const LEASE: Duration = Duration::from_secs(2);

/// Replaces a key by a hash with one field.
const HASH: &str =
    "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])";

/// `SET` on one lock's key made 100 locks lost, because they were renewed in the same call; so did
/// garbage in one field.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_bad_key_takes_no_other_lock_with_it() {
    for damage in [
        &["SET", "tenure:{0}", "theirs"][..],
        &["SET", "tenure:{0}", "1794768132030839 garbage"],
        &["EVAL", HASH, "1", "tenure:{0}", "s", "garbage"],
        &["EVAL", HASH, "1", "tenure:{0}", "o", "garbage"],
    ] {
        let server = Server::start();
        let tenure = connect(&server.url()).await;
        let locks: Vec<_> = (0..100).map(|at| tenure.lock(at.to_string()).lease(LEASE)).collect();
        let mut guards = Vec::new();
        for lock in &locks {
            guards.push(lock.acquire().await.unwrap());
        }
        command(&server, damage);
        let lost = tokio::time::timeout(LONG, guards[0].lost()).await.expect("it is lost");
        assert!(matches!(lost.why(), WhyLost::NotHeld | WhyLost::LeaseEnded));
        pass(LEASE).await;
        let held = guards[1..].iter().filter(|guard| !guard.is_lost()).count();
        assert_eq!(held, 99, "{damage:?}");
        check_list(&tenure).await;
    }
}

/// The list contains all of them, and marks the one that cannot be read.
async fn check_list(tenure: &Tenure) {
    let listed = tenure.list("", 1000).await.unwrap();
    assert_eq!(listed.len(), 100);
    let bad: Vec<_> = listed.iter().filter(|it| it.error.is_some()).collect();
    assert_eq!(bad.len(), 1);
    assert_eq!(bad[0].name.as_str(), "0");
    let trouble = bad[0].error.as_ref().unwrap();
    assert!(trouble.contains("tenure:{0}") || trouble.contains("WRONGTYPE"), "{trouble}");
}

/// Sets the keys that the user ann may access.
fn allow(server: &Server, keys: &str) {
    let words = ["ACL", "SETUSER", "ann", "on", ">secret", "resetkeys", keys, "&*", "+@all"];
    command(server, &words);
}

async fn connect_as_ann(server: &Server) -> Tenure {
    allow(server, "~tenure:*");
    connect(&format!("redis://ann:secret@127.0.0.1:{}", server.port().unwrap())).await
}

/// The user may not access one key: the server refuses the whole call, which is split.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_became_forbidden_takes_no_other_lock_with_it() {
    let server = Server::builder().on_port().start();
    let tenure = connect_as_ann(&server).await;
    let mut guards = Vec::new();
    for name in ["a1", "a2", "b", "a3", "a4"] {
        guards.push(tenure.lock(name).lease(LEASE).acquire().await.unwrap());
    }
    allow(&server, "~tenure:{a*");
    let forbidden = guards.remove(2);
    assert_eq!(forbidden.lost().await.why(), WhyLost::LeaseEnded);
    pass(LEASE).await;
    guards.iter().for_each(|guard| guard.ensure_held().unwrap());
}

/// Another tenant fills the server's memory, which evicts nothing: every held lock was lost, and clients could
/// not even connect to inspect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_keeps_what_is_held() {
    let server = Server::builder().arg("--maxmemory-policy", "noeviction").start();
    let tenure = connect(&server.url()).await;
    let guard = tenure.lock("held").lease(LEASE).acquire().await.unwrap();
    let lock = tenure.lock("held");
    let waiter = tokio::spawn(async move { lock.acquire_within(LONG).await });
    until(&tenure, "held", |info| info.waiting == 1).await;
    command(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    let refused = tenure.lock("new").try_acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Unreachable { .. }), "{refused:?}");
    assert!(refused.to_string().contains("OOM"), "{refused}");
    pass(LEASE * 2).await;
    guard.ensure_held().unwrap();
    let late = tokio::time::timeout(LONG, Tenure::connect(&server.url())).await.unwrap();
    let late = late.expect("connecting needs no memory");
    assert_eq!(late.list("", 10).await.unwrap().len(), 1);
    guard.release().await.unwrap();
    let next = waiter.await.unwrap().expect("it is handed over");
    pass(ms(100)).await;
    next.release().await.unwrap();
}

/// The user may not access one key, and a call of releases contains it among others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_refused_because_of_one_key_is_split() {
    let server = Server::builder().on_port().start();
    let tenure = connect_as_ann(&server).await;
    let names: Vec<_> =
        (0..40).map(|at| if at == 20 { "b".into() } else { format!("a{at}") }).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(tenure.lock(name.as_str()).acquire().await.unwrap());
    }
    allow(&server, "~tenure:{a*");
    // Releases during the first call are batched in the next.
    let releases: Vec<_> = guards
        .into_iter()
        .map(|guard| tokio::spawn(async move { guard.release().await }))
        .collect();
    let mut refused = Vec::new();
    for (name, release) in names.iter().zip(releases) {
        if let Err(error) = release.await.unwrap() {
            assert!(error.to_string().contains("NOPERM"), "{error}");
            refused.push(name.as_str());
        }
    }
    assert_eq!(refused, ["b"]);
}

/// A release finds 2,500 dead waiters, more than one call removes; a live one behind them waited for 9.9 s, with
/// the lock free. I7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn very_many_dead_waiters_cost_a_live_one_little() {
    let (_server, proxy, dying, direct) = behind_proxy().await;
    let held = direct.lock("x").acquire().await.unwrap();
    let dead: Vec<_> = (0..2_500)
        .map(|_| {
            // Fair waiters do not share a ticket.
            let lock = dying.lock("x").fair();
            tokio::spawn(async move { lock.acquire().await })
        })
        .collect();
    until(&direct, "x", |info| info.waiting == 2_500).await;
    let lock = direct.lock("x");
    let live = tokio::spawn(async move { lock.acquire().await });
    until(&direct, "x", |info| info.waiting == 2_501).await;
    // Like a killed process: its connections are closed, and nothing is cancelled.
    proxy.refuse(true);
    proxy.cut();
    held.release().await.unwrap();
    drop(tokio::time::timeout(ms(4_000), live).await.expect("it is served soon").unwrap().unwrap());
    drop(dead);
}

/// The release of a lock whose key is not Tenure's was retried for up to 24 h. An error that only an operator can
/// fix is reported at once, and not retried in the background.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lasting_error_is_not_retried() {
    let server = Server::start();
    let tenure = connect(&server.url()).await;
    let guard = tenure.lock("x").acquire().await.unwrap();
    command(&server, &["SET", "tenure:{x}", "theirs"]);
    // With retries, both would take the client's patience of five seconds.
    let released = tokio::time::timeout(ms(4_000), guard.release()).await.expect("at once");
    assert!(matches!(released, Err(Error::Unreachable { .. })), "{released:?}");
    let acquired = tokio::time::timeout(ms(4_000), tenure.lock("x").acquire()).await;
    let error = acquired.expect("at once").unwrap_err();
    assert!(error.to_string().contains("DAMAGED"), "{error}");
    assert!(tenure.flush(ms(4_000)).await, "no work is left");
}

/// More leases have ended than one call removes, so that the acquire of a writer is sent again. Its
/// future is dropped meanwhile: the second call must not leave the lock held. I8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_is_dropped_while_it_is_continued_holds_nothing() {
    let server = Server::start();
    let readers = RedisEngine::connect(&server.url()).await.unwrap();
    let about = Arc::new(About::this_process());
    let request = |_| AcquireRequest {
        name: LockName::new("x").unwrap(),
        entry: Entry { owner: Owner::new(), number: 0 },
        shape: Shape::new(Kind::ReadWrite, 1_000_000_000, 1).unwrap(),
        lease: Lease::new(ms(500)).unwrap(),
        about: about.clone(),
        queue: None,
        proposal: None,
    };
    for answer in readers.acquire_all((0..5_000).map(request).collect()) {
        assert!(matches!(answer.await, Ok(Acquired::Granted(_))));
    }
    pass(ms(600)).await;
    let tenure = connect(&server.url()).await;
    let lock = tenure.rwlock("x");
    let mut writing = Box::pin(lock.write());
    let _ = std::future::poll_fn(|context| Poll::Ready(writing.as_mut().poll(context))).await;
    drop(writing);
    assert!(tenure.flush(LONG).await);
    let next = connect(&server.url()).await.rwlock("x");
    let writer = tokio::time::timeout(ms(5_000), next.write()).await;
    drop(writer.expect("it is free").unwrap());
}

/// R22: the fallback was used though the store answered: another client could hold the same lock there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_answers_is_not_replaced_by_the_fallback() {
    let server = Server::start();
    let builder = Tenure::builder().fallback(Fallback::Process).patience(ms(100));
    let tenure = builder.connect(&server.url()).await.unwrap();
    command(&server, &["RPUSH", "tenure:{foreign}", "1"]);
    let refused = tenure.lock("foreign").acquire_within(LONG).await.unwrap_err();
    assert!(refused.to_string().contains("foreign"), "{refused}");
    command(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    let refused = tenure.lock("full").acquire_within(LONG).await.unwrap_err();
    assert!(refused.to_string().contains("OOM"), "{refused}");
    assert_eq!(tenure.health().degraded, 0);
}
