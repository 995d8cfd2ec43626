//! A failover behind one address, such as that of a load balancer, a service or a DNS name.
//!
//! The former master becomes a replica, and keeps its connections.

use std::time::Duration;

use tenure::engine::Health;
use tenure::{Error, Released, Tenure};
use tenure_testkit::resp::Reply;
use tenure_testkit::{Flavor, Proxy, Server};
use tokio::task::JoinSet;

use super::fixture::{LONG, command, connect, ms, pass, until};

fn start(flavor: Flavor) -> Server {
    // A replica is synchronised at once; by default a master waits for more of them.
    Server::builder().flavor(flavor).arg("--repl-diskless-sync-delay", "0").on_port().start()
}

/// Makes `replica` a replica of `master`, and waits until it is.
async fn replicate(replica: &Server, master: &Server) {
    let port = master.port().unwrap().to_string();
    command(replica, &["REPLICAOF", "127.0.0.1", &port]);
    let replicated = tokio::time::timeout(LONG, async {
        let info = || command(replica, &["INFO", "replication"]).text().unwrap();
        while !info().contains("master_link_status:up") {
            pass(ms(5)).await;
        }
    });
    replicated.await.expect("it replicates");
}

/// Waits until the replica has the key.
async fn catch_up(replica: &Server, key: &str) {
    let seen = tokio::time::timeout(LONG, async {
        while command(replica, &["EXISTS", key]) != Reply::Integer(1) {
            pass(ms(5)).await;
        }
    });
    seen.await.expect("it has the key");
}

async fn until_health(tenure: &Tenure, what: &str, is_so: impl Fn(&Health) -> bool) {
    let seen = tokio::time::timeout(LONG, async {
        while !is_so(&tenure.health()) {
            pass(ms(5)).await;
        }
    });
    if seen.await.is_err() {
        panic!("never {what}: {:?}", tenure.health());
    }
}

/// I6, I7, I9: a lock is held when the roles change. While the address still leads to the former master, the client
/// reports its links as down, with the reason. Then it leads to the new one: the client connects before the lease
/// ends, keeps its lock, and receives wake-ups.
async fn follows_the_master(flavor: Flavor) {
    let (old, new) = (start(flavor), start(flavor));
    replicate(&new, &old).await;
    let proxy = Proxy::start(&old);
    let holder = connect(&proxy.url()).await;
    let guard = holder.lock("x").lease(Duration::from_secs(9)).acquire().await.unwrap();
    catch_up(&new, "tenure:{x}").await;

    command(&new, &["REPLICAOF", "NO", "ONE"]);
    replicate(&old, &new).await;
    let is_down = |health: &Health| {
        let names_replica = |error: &str| error.contains("replica") && error.contains("READONLY");
        health.links.iter().any(|it| !it.is_up && it.error.as_deref().is_some_and(names_replica))
    };
    until_health(&holder, "down", is_down).await;

    proxy.forward_to(&new);
    until_health(&holder, "well", Health::is_well).await;
    let witness = connect(&new.url()).await;
    until(&witness, "x", |info| info.holders.iter().any(|it| it.lease_left > ms(8_000))).await;
    guard.ensure_held().unwrap();

    let other = witness.lock("y").acquire().await.unwrap();
    let lock = holder.lock("y");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    until(&witness, "y", |info| info.waiting == 1).await;
    drop(other);
    // Well below the five seconds after which a waiter polls.
    let granted =
        tokio::time::timeout(Duration::from_secs(3), waiter).await.expect("it is notified");
    drop(granted.unwrap().unwrap());
    assert_eq!(guard.release().await.unwrap(), Released::Now);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_was_demoted_is_left() {
    let mut all = JoinSet::new();
    for flavor in Flavor::wanted() {
        all.spawn(async move {
            let outcome = tokio::spawn(follows_the_master(flavor)).await;
            outcome.unwrap_or_else(|_| panic!("on {flavor}"));
        });
    }
    all.join_all().await;
}

/// A replica is refused with a message, for a user who may run ROLE or INFO. A user who may run neither can
/// connect to a master.
#[tokio::test]
async fn a_replica_is_refused_when_connecting() {
    let (master, replica) = (start(Flavor::Redis), start(Flavor::Redis));
    let locks = ["~tenure:*", "&tenure:*", "+@all"];
    for server in [&master, &replica] {
        for (user, forbidden) in
            [("ann", &["-role"][..]), ("bob", &["-info"][..]), ("eve", &["-role", "-info"][..])]
        {
            let words = [&["ACL", "SETUSER", user, "on", ">word"][..], &locks, forbidden].concat();
            command(server, &words);
        }
    }
    replicate(&replica, &master).await;
    let url = |server: &Server, user: &str| {
        server.url().replace("redis://", &format!("redis://{user}:word@"))
    };
    for user in ["ann", "bob"] {
        let error = Tenure::connect(&url(&replica, user)).await.unwrap_err();
        assert!(matches!(error, Error::Connect { .. }), "{error:?}");
        assert!(error.to_string().contains("is a replica"), "{user}: {error}");
    }
    for user in ["ann", "bob", "eve"] {
        let tenure = connect(&url(&master, user)).await;
        drop(tenure.lock(user).acquire().await.unwrap());
    }
}
