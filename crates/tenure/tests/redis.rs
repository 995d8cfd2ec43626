//! The Redis engine and every fault between it and a real server. Single messages that are lost or late are
//! in `redis/matrix.rs`.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/waiting.rs"]
mod waiting;

mod redis {
    pub(crate) mod fixture;

    mod again;
    mod damage;
    mod distance;
    mod endings;
    mod failover;
    mod fallback;
    mod hostile;
    mod kinds;
    mod loading;
    mod losses;
    mod matrix;
    mod names;
    mod outage;
    mod readers;
    mod scripts;
    mod subscription;
}

use std::time::Duration;

use redis::fixture::{LONG, behind_proxy, calls, command, connect, ms, pass, until, until_free};
use tenure::{Error, Released, Tenure, WhyLost};
use tenure_testkit::{Server, resp::Reply};

/// I7: every message is lost, and the wait is still bounded.
#[tokio::test]
async fn lost_messages_cost_bounded_time() {
    let (_server, proxy, proxied, direct) = behind_proxy().await;
    let held = direct.lock("x").acquire().await.unwrap();
    proxy.drop_messages(true);
    let waiter = tokio::spawn({
        let lock = proxied.lock("x");
        async move { lock.acquire().await.unwrap() }
    });
    until(&direct, "x", |info| info.waiting == 1).await;
    drop(held);
    let guard = tokio::time::timeout(ms(10_000), waiter).await.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Now);
}

/// A lock that was handed over has a claim lease of three seconds until its first renewal. That renewal is lost,
/// and there is time for a retry. (It used to wait for a twelfth of the whole lease, and came too late.)
#[tokio::test]
async fn a_lost_first_renewal_of_a_handover_costs_nothing() {
    let (server, proxy, proxied, direct) = behind_proxy().await;
    let rule = proxy.drop_request(calls(&server, "renew"), 1);
    let mut tries = 0;
    // A waiter that polls just when the lock is released gets the whole lease with the answer, and needs no
    // first renewal: then repeat.
    let guard = loop {
        let name = format!("x{tries}");
        let held = direct.lock(name.as_str()).acquire().await.unwrap();
        let waiter = tokio::spawn({
            let lock = proxied.lock(name.as_str());
            async move { lock.acquire().await.unwrap() }
        });
        until(&direct, &name, |info| info.waiting == 1).await;
        drop(held);
        let guard = waiter.await.unwrap();
        if guard.remaining() < Duration::from_secs(4) {
            break guard;
        }
        tries += 1;
        assert!(tries < 20, "a hand-over is seen");
    };
    let renewed = tokio::time::timeout(LONG, async {
        while guard.remaining() < Duration::from_secs(10) {
            guard.ensure_held().unwrap();
            pass(ms(2)).await;
        }
    });
    renewed.await.unwrap();
    assert_eq!(proxy.strikes(rule), 1);
}

/// I7: the subscription is cut while a waiter waits. The client subscribes again, and the waiter polls.
#[tokio::test]
async fn a_cut_subscription_wakes_every_waiter() {
    let (_server, proxy, proxied, direct) = behind_proxy().await;
    let held = direct.lock("x").acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = proxied.lock("x");
        async move { lock.acquire().await.unwrap() }
    });
    until(&direct, "x", |info| info.waiting == 1).await;
    proxy.refuse(true);
    proxy.cut();
    drop(held);
    pass(ms(100)).await;
    proxy.refuse(false);
    drop(tokio::time::timeout(ms(10_000), waiter).await.unwrap().unwrap());
    until_free(&direct, "x").await;
}

/// I9: all connections become black holes. The holder is notified before another client gets the lock, and
/// the client recovers when the network does.
#[tokio::test]
async fn a_black_hole_is_noticed_and_left() {
    let (_server, proxy, proxied, direct) = behind_proxy().await;
    let guard = proxied.lock("x").lease(Duration::from_secs(3)).acquire().await.unwrap();
    proxy.black_hole();
    assert_eq!(guard.lost().await.why(), WhyLost::LeaseEnded);
    assert!(!direct.lock("x").inspect().await.unwrap().is_free(), "notified too late");
    let next = direct.lock("x").acquire_within(LONG).await.unwrap();
    proxy.heal();
    let other = tokio::time::timeout(LONG, async {
        loop {
            if let Ok(guard) = proxied.lock("y").acquire().await {
                return guard;
            }
        }
    });
    drop(other.await.expect("connected again"));
    drop(guard);
    assert_eq!(direct.lock("x").inspect().await.unwrap().holders[0].owner, next.owner(), "I3");
}

#[tokio::test]
async fn a_server_that_lost_its_scripts_is_sent_them_again() {
    let server = Server::start();
    let tenure = connect(&server.url()).await;
    let guard = tenure.lock("x").lease(ms(1_500)).acquire().await.unwrap();
    for _ in 0..5 {
        command(&server, &["SCRIPT", "FLUSH"]);
        assert!(tenure.lock("x").try_acquire().await.unwrap().is_none());
        pass(ms(700)).await;
    }
    assert!(!guard.is_lost());
    command(&server, &["SCRIPT", "FLUSH"]);
    assert_eq!(guard.release().await.unwrap(), Released::Now);
}

/// I4: all data is lost, the holder notices at its next renewal, and fences have grown.
#[tokio::test]
async fn lost_data_is_noticed_at_the_next_renewal() {
    let server = Server::start();
    let tenure = connect(&server.url()).await;
    let guard = tenure.lock("x").lease(ms(900)).acquire().await.unwrap();
    command(&server, &["FLUSHALL"]);
    let lost = tokio::time::timeout(ms(800), guard.lost()).await.expect("before the lease ends");
    assert_eq!(lost.why(), WhyLost::NotHeld);
    let next = tenure.lock("x").acquire().await.unwrap();
    assert!(next.fence() > guard.fence());
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost);
    assert!(!next.is_lost(), "I3");
}

/// kill -9 and a restart: with an append-only file the lock survives, without one it is lost, and
/// the holder is notified.
#[tokio::test]
async fn a_killed_server_keeps_its_persisted_locks() {
    tokio::join!(kill_and_restart(true), kill_and_restart(false));
}

async fn kill_and_restart(keeps: bool) {
    let builder = Server::builder();
    let mut server = if keeps { builder.persistent() } else { builder }.start();
    let tenure = connect(&server.url()).await;
    let guard = tenure.lock("x").lease(Duration::from_secs(6)).acquire().await.unwrap();
    server.kill();
    server.restart();
    let lost = tokio::time::timeout(Duration::from_secs(7), guard.lost()).await;
    assert_eq!(lost.is_err(), keeps, "{lost:?}");
    if keeps {
        assert_eq!(guard.release().await.unwrap(), Released::Now);
    }
    let next = tenure.lock("x").acquire_within(LONG).await.unwrap();
    assert!(next.fence().value() > 1_700_000_000_000_000);
}

/// The refusals of a real server are classified, and change nothing.
#[tokio::test]
async fn refusals_of_a_real_server_are_distinguished() {
    let server = Server::start();
    let url = server.url();
    let tenure = Tenure::builder().patience(ms(100)).connect(&url).await.unwrap();
    let refused = |error: Error, code: &str| {
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        assert!(error.to_string().contains(code), "{error}");
    };
    command(&server, &["SET", "tenure:{taken}", "foreign"]);
    refused(tenure.lock("taken").acquire().await.unwrap_err(), "DAMAGED");
    let kept = command(&server, &["GET", "tenure:{taken}"]);
    assert_eq!(kept.text().unwrap(), "foreign", "nothing was overwritten");
    command(&server, &["RPUSH", "tenure:{list}", "foreign"]);
    refused(tenure.lock("list").acquire().await.unwrap_err(), "WRONGTYPE");

    command(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    refused(tenure.lock("x").acquire().await.unwrap_err(), "OOM");
    command(&server, &["CONFIG", "SET", "maxmemory", "0"]);

    command(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    refused(tenure.lock("x").acquire().await.unwrap_err(), "READONLY");
    command(&server, &["REPLICAOF", "NO", "ONE"]);

    command(&server, &["CONFIG", "SET", "lua-time-limit", "50"]);
    let mut busy = server.connect().unwrap();
    busy.send(&["EVAL", "while true do end", "0"]).unwrap();
    pass(ms(200)).await;
    refused(tenure.lock("x").acquire().await.unwrap_err(), "BUSY");
    command(&server, &["SCRIPT", "KILL"]);

    let guard = tenure.lock("x").acquire_within(LONG).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Now);
}

#[tokio::test]
async fn users_and_passwords_are_used_and_never_shown() {
    let server = Server::builder().on_port().start();
    let rights = ["~tenure:*", "&tenure:*", "+@all"];
    command(&server, &[&["ACL", "SETUSER", "ann", "on", ">s3cret"][..], &rights].concat());
    command(&server, &["ACL", "SETUSER", "bob", "on", ">s3cret", "~other:*", "&*", "+@all"]);
    let url = |login: &str| server.url().replace("redis://", &format!("redis://{login}@"));

    let tenure = connect(&url("ann:s3cret")).await;
    drop(tenure.lock("x").acquire().await.unwrap());
    assert!(!format!("{tenure:?}").contains("s3cret"));

    let wrong = Tenure::connect(&url("ann:wr0ng")).await.unwrap_err();
    assert!(matches!(wrong, Error::Connect { .. }), "{wrong:?}");
    assert!(wrong.to_string().contains("WRONGPASS"), "{wrong}");
    assert!(!format!("{wrong} {wrong:?}").contains("wr0ng"));

    let forbidden = Tenure::connect(&url("bob:s3cret")).await.unwrap_err();
    assert!(forbidden.to_string().contains("NOPERM"), "{forbidden}");
}

#[tokio::test]
async fn a_server_that_is_down_is_reported_at_once() {
    let error = Tenure::connect("redis://127.0.0.1:1").await.unwrap_err();
    assert!(error.to_string().contains("could not connect to 127.0.0.1:1"), "{error}");
}

/// One release publishes one message, however many clients wait.
#[tokio::test]
async fn a_release_with_many_waiters_sends_one_message() {
    let (_server, proxy, proxied, direct) = behind_proxy().await;
    let held = direct.lock("x").acquire().await.unwrap();
    let waiters: Vec<_> = (0..200)
        .map(|_| {
            let lock = proxied.lock("x").fair();
            tokio::spawn(async move { lock.acquire().await.map(std::mem::forget) })
        })
        .collect();
    until(&direct, "x", |info| info.waiting == 200).await;
    let before = proxy.messages();
    drop(held);
    until(&direct, "x", |info| info.waiting == 199).await;
    pass(ms(100)).await;
    assert_eq!(proxy.messages() - before, 1);
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Names used once leave only their fence, for a minute, or for the configured retention.
#[tokio::test]
async fn a_released_lock_leaves_only_its_fence_for_a_while() {
    let server = Server::start();
    let tenure = connect(&server.url()).await;
    drop(tenure.lock("once").acquire().await.unwrap());
    until_free(&tenure, "once").await;
    let held = tenure.lock("contended").acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = tenure.lock("contended").fair();
        async move { lock.acquire().await.unwrap() }
    });
    until(&tenure, "contended", |info| info.waiting == 1).await;
    drop(held);
    drop(waiter.await.unwrap());
    until_free(&tenure, "contended").await;
    for lock in ["once", "contended"] {
        let key = format!("tenure:{{{lock}}}");
        assert_eq!(command(&server, &["STRLEN", &key]), Reply::Integer(16), "{lock}");
        let Reply::Integer(left) = command(&server, &["PTTL", &key]) else { panic!("no expiry") };
        assert!(left > 0 && left <= 60_000, "{lock}: {left} ms");
    }
    let Reply::Array(Some(keys)) = command(&server, &["KEYS", "*"]) else { panic!("no list") };
    assert_eq!(keys.len(), 4, "two locks, the client and the store: {keys:?}");
    drop(tenure);
    let deleted = tokio::time::timeout(LONG, async {
        while command(&server, &["DBSIZE"]) != Reply::Integer(3) {
            pass(ms(5)).await;
        }
    });
    deleted.await.expect("the record of a closed client is deleted");
}

/// The retention of fences can be configured, within bounds.
#[tokio::test]
async fn the_retention_of_fences_can_be_configured() {
    let server = Server::start();
    for (time, is_right) in [(1, true), (86_400, true), (0, false), (86_401, false)] {
        let builder = Tenure::builder().fence_retention(Duration::from_secs(time));
        let connected = builder.connect(&server.url()).await;
        assert_eq!(connected.is_ok(), is_right, "{time} s");
    }
    let builder = Tenure::builder().fence_retention(Duration::from_secs(1));
    let tenure = builder.connect(&server.url()).await.unwrap();
    drop(tenure.lock("x").lease(Duration::from_secs(1)).acquire().await.unwrap());
    until_free(&tenure, "x").await;
    let deleted = tokio::time::timeout(LONG, async {
        while command(&server, &["EXISTS", "tenure:{x}"]) != Reply::Integer(0) {
            pass(ms(20)).await;
        }
    });
    deleted.await.expect("its key expires");
}
