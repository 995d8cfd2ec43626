//! A master that Sentinels watch: found, followed, and left, on real servers.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/flavors.rs"]
mod flavors;
#[path = "common/waiting.rs"]
mod waiting;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use flavors::on_all;
use tenure::engine::{Health, Severity};
use tenure::{Error, Guard, Released, Tenure};
use tenure_testkit::resp::Reply;
use tenure_testkit::{Flavor, Sentinels, Server};
use waiting::{LONG, acquire_when_reachable, pass, until, until_well};

/// Longer than a failover takes in most cases: the lock must survive it.
const LEASE: Duration = Duration::from_secs(60);

async fn acquire(tenure: &Tenure, name: &str) -> Guard {
    acquire_when_reachable(&tenure.lock(name).lease(LEASE)).await
}

fn has(server: &Server, name: &str) -> bool {
    let key = format!("tenure:{{{name}}}");
    server.connect().unwrap().command(&["EXISTS", &key]).unwrap() == Reply::Integer(1)
}

async fn until_replicated(group: &Sentinels, name: &str) {
    until("the replicas have the lock", async || {
        group.servers.iter().all(|server| has(server, name))
    })
    .await;
}

async fn start(flavor: Flavor, replicas: usize) -> Sentinels {
    tokio::task::spawn_blocking(move || Sentinels::start(flavor, replicas)).await.unwrap()
}

/// I7, I9: an operator has another server promoted. The holder keeps its lock, and its waiter is granted it by the new
/// master.
async fn follows_a_planned_failover(flavor: Flavor) {
    let group = start(flavor, 1).await;
    let (holder, waiter) = (connect(&group.url()).await, connect(&group.url()).await);
    let guard = holder.lock("x").lease(LEASE).acquire().await.unwrap();
    let lock = waiter.lock("x");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until("the waiter is queued", async || holder.lock("x").inspect().await.unwrap().waiting == 1)
        .await;
    until_replicated(&group, "x").await;

    let group = tokio::task::spawn_blocking(move || {
        group.fail_over();
        group
    });
    let group = group.await.unwrap();
    let new = group.master().unwrap();
    assert_ne!(new.port(), group.servers[0].port());
    until_well(&holder).await;
    until_well(&waiter).await;
    guard.ensure_held().unwrap();
    let fence = guard.fence();
    assert_eq!(guard.release().await.unwrap(), Released::Now);
    let next = tokio::time::timeout(LONG, waiting).await.expect("granted").unwrap().unwrap();
    assert!(next.fence() > fence, "I4");
    assert!(has(new, "x"), "the new master has it");
}

#[test]
fn a_planned_failover_is_followed() {
    on_all(follows_a_planned_failover);
}

/// I4, I9: the master is killed. A lock that its replicas have is kept, and new ones are had from the next master.
async fn follows_a_crash(flavor: Flavor) {
    let mut group = start(flavor, 2).await;
    let client = connect(&group.url()).await;
    let kept = client.lock("kept").lease(LEASE).acquire().await.unwrap();
    until_replicated(&group, "kept").await;
    let group = tokio::task::spawn_blocking(move || {
        let before = group.master_port();
        group.servers[0].kill();
        // Two candidates may split the vote, and one that was not scheduled waits for half a minute: that is up to them.
        group.await_master_other_than(before);
        group
    });
    let _group = group.await.unwrap();
    let guard = acquire(&client, "new").await;
    assert!(guard.fence() > kept.fence(), "I4");
    until_well(&client).await;
    kept.ensure_held().unwrap();
    assert_eq!(kept.release().await.unwrap(), Released::Now);
    assert_eq!(guard.release().await.unwrap(), Released::Now);
}

#[test]
fn a_killed_master_is_replaced() {
    on_all(follows_a_crash);
}

/// I1: a master is stopped, another one is promoted, and the first goes on. It believes to be the master for seconds, and
/// accepts every write; no client of ours sends it one.
async fn leaves_a_master_that_goes_on(flavor: Flavor) {
    let group = start(flavor, 1).await;
    let client = connect(&group.url()).await;
    drop(client.lock("before").acquire().await.unwrap());
    group.pause(0, true);
    let group = tokio::task::spawn_blocking(move || {
        let before = group.servers[0].port();
        group.await_master_other_than(before);
        group.pause(0, false);
        group
    });
    let group = group.await.unwrap();
    let (old, new) = (&group.servers[0], group.master().unwrap());
    let guards = acquire_many(&client, 20).await;
    for (number, guard) in guards.into_iter().enumerate() {
        assert!(has(new, &format!("after/{number}")));
        guard.ensure_held().unwrap();
    }
    let role = old.connect().unwrap().command(&["ROLE"]).unwrap();
    let is_master =
        matches!(&role, Reply::Array(Some(words)) if words[0].text().as_deref() == Some("master"));
    let is_lost = (0..20).any(|number| has(old, &format!("after/{number}")));
    assert!(!(is_master && is_lost), "a lock was taken from the old master");
}

async fn acquire_many(client: &Tenure, count: usize) -> Vec<Guard> {
    let mut guards = Vec::new();
    for number in 0..count {
        guards.push(acquire(client, &format!("after/{number}")).await);
    }
    guards
}

#[test]
fn an_old_master_that_goes_on_is_not_used() {
    on_all(leaves_a_master_that_goes_on);
}

/// I4, I9: what asynchronous replication can lose. The replica has not got the lock when the master dies: the holder is
/// notified, another client is granted the lock, and its fence is larger, so that checked writes stay right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_no_replica_has_is_lost_and_reported() {
    let mut group = start(Flavor::Redis, 1).await;
    let (holder, other) = (connect(&group.url()).await, connect(&group.url()).await);
    // Nothing listens there: replication is cut, and no buffer holds what the replica is to miss.
    let cut = group.servers[1].connect().unwrap().command(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(cut.unwrap(), Reply::Simple("OK".into()));
    let guard = holder.lock("x").lease(LEASE).acquire().await.unwrap();
    group.servers[0].kill();
    assert!(!has(&group.servers[1], "x"));
    let next = acquire(&other, "x").await;
    assert!(next.fence() > guard.fence(), "I4");
    let lost = tokio::time::timeout(LONG, guard.lost()).await.expect("it is reported");
    assert_eq!(lost.name().as_str(), "x");
}

/// One Sentinel of three is down: the others decide. Two are down: a client is refused in words, and one that is connected
/// goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_of_the_sentinels_decides() {
    let mut group = start(Flavor::Redis, 1).await;
    group.kill_sentinel(2);
    let client = connect(&group.url()).await;
    drop(client.lock("x").acquire().await.unwrap());
    group.kill_sentinel(1);
    let refused = Tenure::connect(&group.url()).await.unwrap_err();
    assert!(matches!(refused, Error::Connect { .. }), "{refused:?}");
    let refused = refused.to_string();
    assert!(refused.contains("1 of 3 answer") && refused.contains("`main`"), "{refused}");
    assert!(client.health().is_well());
    drop(client.lock("x").acquire().await.unwrap());
    group.restart_sentinel(1);
    drop(connect(&group.url()).await);
}

/// The URL names one Sentinel. The client learns of the others, and follows a failover that this one does not see.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_the_url_does_not_name_are_found() {
    let mut group = start(Flavor::Redis, 1).await;
    let client = connect(&group.url_of_one()).await;
    drop(client.lock("x").acquire().await.unwrap());
    let before = group.master_port();
    group.kill_sentinel(0);
    group.servers[0].kill();
    // Two of three must agree, which takes them long on a busy machine; if they do not, their logs are shown.
    group.await_master_other_than(before);
    drop(acquire(&client, "x").await);
}

/// A Sentinel that names any server as the master, and announces nothing. It knows no other.
struct Fake {
    port: u16,
    master: Arc<AtomicU16>,
    /// How many connections were made to it.
    connections: Arc<AtomicUsize>,
}

impl Fake {
    fn start(id: usize, master: &Arc<AtomicU16>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let fake = Self { port, master: master.clone(), connections: Arc::default() };
        let (master, connections) = (fake.master.clone(), fake.connections.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                connections.fetch_add(1, Ordering::SeqCst);
                let (client, master) = (client.unwrap(), master.clone());
                std::thread::spawn(move || answer(client, id, &master));
            }
        });
        fake
    }
}

fn answer(mut client: TcpStream, id: usize, master: &AtomicU16) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        let request = String::from_utf8_lossy(&bytes[..count]).to_uppercase();
        let port = master.load(Ordering::SeqCst).to_string();
        let reply = match &request {
            it if it.contains("MYID") => format!("$1\r\n{id}\r\n"),
            it if it.contains("GET-MASTER") => {
                format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
            }
            it if it.contains("SUBSCRIBE") => "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n".into(),
            it if it.contains("PING") => "*2\r\n$4\r\npong\r\n$0\r\n\r\n".into(),
            _ => "*0\r\n".to_owned(),
        };
        if client.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

/// I1, I9: no Sentinel announces the switch, and one connection alone is lost. It leads to the new master, and the others must
/// follow: no client uses two masters. So the lock that only the old one has is lost, and reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_connections_lead_to_one_master() {
    let servers = [(); 2].map(|()| Server::builder().on_port().start());
    let [old, new] = servers.each_ref().map(|server| server.port().unwrap());
    let master = Arc::new(AtomicU16::new(old));
    let fakes: Vec<_> = (1..=3).map(|id| Fake::start(id, &master)).collect();
    let hosts: Vec<_> = fakes.iter().map(|fake| format!("127.0.0.1:{}", fake.port)).collect();
    let client = connect(&format!("redis+sentinel://{}/main", hosts.join(","))).await;
    for connection in ["pubsub", "normal"] {
        let guard = client.lock(connection).lease(LEASE).acquire().await.unwrap();
        master.store(new, Ordering::SeqCst);
        let mut plain = servers[0].connect().unwrap();
        plain.command(&["CLIENT", "KILL", "TYPE", connection, "SKIPME", "yes"]).unwrap();
        let lost = tokio::time::timeout(LONG, guard.lost()).await.expect("it is reported");
        assert_eq!(lost.name().as_str(), connection);
        drop(client.lock(connection).lease(LEASE).acquire().await.unwrap());
        master.store(old, Ordering::SeqCst);
        until("the client is back", async || {
            !has(&servers[0], "back") && {
                let guard = acquire(&client, "back").await;
                let is_back = has(&servers[0], "back");
                drop(guard);
                is_back
            }
        })
        .await;
        servers[0].connect().unwrap().command(&["FLUSHALL"]).unwrap();
    }
}

/// I1: a Sentinel that had been reset knew no other, and named an old master. It was the nearest of four, and decided alone for
/// every client that it answered first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_knows_no_other_does_not_decide_alone() {
    let group = start(Flavor::Redis, 1).await;
    let old = Server::builder().on_port().start();
    let stale = Fake::start(9, &Arc::new(AtomicU16::new(old.port().unwrap())));
    let url = group.url().replace("://", &format!("://127.0.0.1:{},", stale.port));
    for round in 0..20 {
        let name = format!("x{round}");
        let _guard = connect(&url).await.lock(&name).acquire().await.unwrap();
        assert!(!has(&old, &name), "the majority names another master");
    }
}

/// A master stalled with hundreds of calls in flight. The Sentinels were asked about each late answer, on a connection of its
/// own: more than a thousand at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_answers_are_confirmed_together() {
    let server = Server::builder().on_port().start();
    let far = tenure_testkit::Distance::start(&server, Duration::from_millis(10));
    let port = far.url().rsplit(':').next().unwrap().parse().unwrap();
    let fakes: Vec<_> =
        (1..=3).map(|id| Fake::start(id, &Arc::new(AtomicU16::new(port)))).collect();
    let hosts: Vec<_> = fakes.iter().map(|fake| format!("127.0.0.1:{}", fake.port)).collect();
    let client = connect(&format!("redis+sentinel://{}/main", hosts.join(","))).await;
    drop(client.lock("warm").acquire().await.unwrap());
    let made = || fakes.iter().map(|fake| fake.connections.load(Ordering::SeqCst)).sum::<usize>();
    server.pause(true);
    let mut tries = Vec::new();
    for number in 0..300 {
        let lock = client.lock(format!("x{number}"));
        tries.push(tokio::spawn(async move { lock.try_acquire().await }));
        tokio::task::yield_now().await;
    }
    pass(Duration::from_millis(800)).await;
    let before = made();
    server.pause(false);
    for attempt in tries {
        assert!(attempt.await.unwrap().unwrap().is_some(), "confirmed, and so believed");
    }
    let made = made() - before;
    assert!(made < 60, "{made} connections");
}

/// The Sentinels were asked on the caller's executor, which panicked where that was not one of tokio.
#[test]
fn the_doctor_and_the_topology_need_no_runtime() {
    let group = Sentinels::start(Flavor::Redis, 1);
    tenure::blocking::block_on(async {
        let client = Tenure::connect(&group.url()).await.unwrap();
        let findings = client.checkup().await.unwrap();
        assert!(findings.iter().any(|it| it.topic == "sentinels"));
        let topology = client.topology().await.unwrap();
        let count = |role| topology.nodes.iter().filter(|node| node.role == role).count();
        assert_eq!(topology.form, "sentinel");
        assert_eq!((count("primary"), count("replica"), count("sentinel")), (1, 1, 3));
        assert!(topology.nodes.iter().all(|node| node.is_up), "{topology:?}");
    });
}

/// The doctor asks every Sentinel.
#[tokio::test]
async fn the_doctor_asks_the_sentinels() {
    let mut group = start(Flavor::Redis, 1).await;
    let client = connect(&group.url_of_one()).await;
    let finding = async || {
        let findings = client.checkup().await.unwrap();
        findings.into_iter().find(|it| it.topic == "sentinels").unwrap()
    };
    until("all Sentinels are known", async || finding().await.found.contains("3 of 3")).await;
    assert_eq!(finding().await.severity, Severity::Fine);
    group.kill_sentinel(2);
    let found = finding().await;
    assert_eq!(found.severity, Severity::Warning);
    assert!(found.found.contains("1 of 3") && found.found.contains("refused"), "{}", found.found);
}

/// A name that no Sentinel watches is refused in words, and so is a server that is no Sentinel.
#[tokio::test]
async fn a_wrong_name_is_refused_in_words() {
    let group = start(Flavor::Redis, 0).await;
    let refused = Tenure::connect(&group.url().replace("/main", "/mian")).await.unwrap_err();
    assert!(refused.to_string().contains("no master of that name"), "{refused}");
    let plain = format!("redis+sentinel://127.0.0.1:{}/main", group.servers[0].port().unwrap());
    let refused = Tenure::connect(&plain).await.unwrap_err();
    assert!(refused.to_string().contains("Sentinel at 127.0.0.1"), "{refused}");
}

/// I6: a master that was stopped answers late. It may have been replaced meanwhile, so its answer counts only if a majority of
/// the Sentinels still names it; without a majority it is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_answer_counts_only_if_the_master_is_the_same() {
    let mut group = start(Flavor::Redis, 0).await;
    group.set_down_after(LONG);
    let client = connect(&group.url()).await;
    for is_majority_up in [true, false] {
        group.pause(0, true);
        let lock = client.lock("x");
        let acquiring = tokio::spawn(async move { lock.try_acquire().await });
        pass(Duration::from_millis(800)).await;
        group.pause(0, false);
        let acquired = acquiring.await.unwrap();
        if is_majority_up {
            let guard = acquired.unwrap().expect("a free lock");
            assert_eq!(guard.release().await.unwrap(), Released::Now);
            (0..2).for_each(|number| group.kill_sentinel(number));
        } else {
            let error = acquired.map(drop).unwrap_err();
            assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
            assert!(error.to_string().contains("may have been replaced"), "{error}");
        }
    }
    // Nothing is left of the acquire whose outcome was unknown.
    drop(client.lock("x").acquire().await.unwrap());
}

async fn connect(url: &str) -> Tenure {
    let tenure = Tenure::connect(url).await.unwrap();
    assert!(Health::is_well(&tenure.health()));
    tenure
}
