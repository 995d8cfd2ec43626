//! A server that loads its data, and answers LOADING meanwhile.
//!
//! A setting makes it slow at that; the lock is the last key that it loads.

use std::time::Duration;

use tenure::{Error, Guard, Released, Tenure};
use tenure_testkit::resp::Reply;
use tenure_testkit::{Flavor, Server};
use tokio::task::JoinSet;

use super::fixture::{LONG, command, connect, ms, pass, until, until_free};

/// A third of it may be over when the server goes down. The rest is enough for the loading below on a busy
/// machine, and for the reconnect, which takes a quarter of that time at most.
const LEASE: Duration = Duration::from_secs(10);

/// With the delay below, about three seconds; the server answers its clients after every thousand keys.
const KEYS: usize = 8_000;

/// How the server comes to load its data.
#[derive(Clone, Copy, Debug)]
enum Trigger {
    /// It is killed and restarted.
    Restarted,
    /// It discards its data in memory, and keeps its connections.
    Reloaded,
}

fn start(flavor: Flavor) -> Server {
    let slow = Server::builder().flavor(flavor).persistent();
    let slow = slow.arg("--key-load-delay", "300").arg("--aof-use-rdb-preamble", "no");
    // Older servers do not have this setting, and always allow it.
    let is_old = flavor == Flavor::Redis6;
    let server = if is_old { slow } else { slow.arg("--enable-debug-command", "yes") }.start();
    let mut connection = server.connect().unwrap();
    for number in 0..KEYS {
        connection.send(&["SET", &format!("filler:{number}"), "x"]).unwrap();
    }
    for _ in 0..KEYS {
        connection.read().unwrap();
    }
    server
}

/// Makes it load its data; returns when it has.
fn load(mut server: Server, trigger: Trigger) -> Server {
    match trigger {
        Trigger::Restarted => {
            server.kill();
            server.restart();
        }
        Trigger::Reloaded => {
            let mut connection = server.connect().unwrap();
            connection.set_patience(LONG).unwrap();
            let reply = connection.command(&["DEBUG", "LOADAOF"]).unwrap();
            assert_eq!(reply, Reply::Simple("OK".into()));
        }
    }
    server
}

/// Polls until the server answers LOADING. Until then, the answer may be an error, but never that the
/// lock is free.
async fn until_loading(tenure: &Tenure) {
    let seen = async {
        loop {
            match tenure.lock("x").try_acquire().await {
                Ok(guard) => assert!(guard.is_none(), "it is held"),
                Err(error) if error.to_string().contains("LOADING") => return error,
                Err(Error::Unreachable { .. } | Error::Unknown { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
            pass(ms(1)).await;
        }
    };
    let error = tokio::time::timeout(LONG, seen).await.expect("it answers LOADING");
    assert!(matches!(error, Error::Unreachable { .. }), "known to be refused: {error:?}");
    assert!(error.to_string().starts_with("could not acquire `x`: the server said: LOADING"));
}

/// The holder keeps its lock: its renewals are refused for a while, and then succeed.
async fn check_kept(tenure: &Tenure, guard: &Guard) {
    let kept = async {
        loop {
            if let Ok(info) = tenure.lock("x").inspect().await {
                let holder = &info.holders[0];
                assert_eq!((holder.owner, holder.fence), (guard.owner(), guard.fence()));
                if holder.lease_left > LEASE * 9 / 10 {
                    return;
                }
            }
            pass(ms(5)).await;
        }
    };
    tokio::time::timeout(LONG, kept).await.expect("it is renewed");
    guard.ensure_held().unwrap();
}

async fn survives_loading(flavor: Flavor, trigger: Trigger) {
    let server = start(flavor);
    let url = server.url();
    let (holder, witness) = (connect(&url).await, connect(&url).await);
    // The default of five seconds may be too short for the loading on a busy machine.
    let waiter = Tenure::builder().patience(LONG).connect(&url).await.unwrap();
    let guard = holder.lock("x").lease(LEASE).acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = waiter.lock("x");
        async move { lock.acquire().await }
    });
    until(&witness, "x", |info| info.waiting == 1).await;

    let loading = tokio::task::spawn_blocking(move || load(server, trigger));
    until_loading(&witness).await;
    guard.ensure_held().unwrap();
    let server = loading.await.unwrap();
    assert_eq!(command(&server, &["EXISTS", "filler:0"]), Reply::Integer(1), "it was loaded");

    check_kept(&witness, &guard).await;
    assert!(!waiting.is_finished(), "I1, or its patience has ended");
    match guard.release().await {
        Ok(released) => assert_eq!(released, Released::Now),
        // Its connection for commands is not up again yet; it is released in the background.
        Err(error) => assert!(matches!(error, Error::Unreachable { .. }), "{error:?}"),
    }
    let next = tokio::time::timeout(ms(10_000), waiting).await.expect("in time");
    drop(next.unwrap().expect("the waiter gets it"));
    until_free(&witness, "x").await;
}

/// All kinds of server concurrently: most of the time is spent waiting.
async fn survives_loading_everywhere(trigger: Trigger) {
    let mut all = JoinSet::new();
    for flavor in Flavor::wanted() {
        all.spawn(async move {
            let outcome = tokio::spawn(survives_loading(flavor, trigger)).await;
            outcome.unwrap_or_else(|_| panic!("on {flavor}"));
        });
    }
    all.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_survives_a_server_that_restarts_and_loads() {
    survives_loading_everywhere(Trigger::Restarted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_survives_a_server_that_loads_on_open_connections() {
    survives_loading_everywhere(Trigger::Reloaded).await;
}
