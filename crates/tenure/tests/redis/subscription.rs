//! The connection for wake-ups is lost while locks are released (I7).

use std::time::Duration;

use tenure_testkit::proxy::{Command, Direction, ReplyLost};

use tenure_testkit::Server;

use super::fixture::{behind_proxy, command, connect, ms, until, until_free};

/// Well below the five seconds after which a waiter polls.
const SOON: Duration = Duration::from_secs(3);

pub(super) fn is_subscribe(command: &Command) -> bool {
    command.name() == "SUBSCRIBE"
}

pub(super) fn is_ping(command: &Command) -> bool {
    command.name() == "PING"
}

/// Five waiters, and all messages for them are lost in the gap. As soon as the client is subscribed again,
/// all of them poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_waiter_polls_when_the_client_is_subscribed_again() {
    let (server, proxy, proxied, direct) = behind_proxy().await;
    let names = ["a", "b", "c", "d", "e"];
    let mut held = Vec::new();
    let mut waiters = Vec::new();
    for name in names {
        held.push(direct.lock(name).acquire().await.unwrap());
        let lock = proxied.lock(name);
        waiters.push(tokio::spawn(async move { lock.acquire().await }));
        until(&direct, name, |info| info.waiting == 1).await;
    }
    let rule = proxy.hold(is_subscribe, Direction::Requests);
    // The direct client's subscription is cut as well, without effect: it waits for nothing.
    command(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    proxy.wait_until("the client subscribes again", |proxy| proxy.strikes(rule) == 1);
    drop(held);
    for name in names {
        until(&direct, name, |info| info.is_free() && info.waiting == 1).await;
    }
    proxy.release();
    for waiter in waiters {
        let guard = tokio::time::timeout(SOON, waiter).await.expect("all poll at once");
        drop(guard.unwrap().unwrap());
    }
}

/// Subscribing fails repeatedly, in every way. No waiter waits longer than its heartbeat,
/// and the client is subscribed in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_fails_is_tried_until_it_holds() {
    let cut = tokio::spawn(fail_to_subscribe(ReplyLost::Cut, 5));
    // Each silent failure takes two seconds to be noticed.
    fail_to_subscribe(ReplyLost::Silence, 2).await;
    cut.await.unwrap();
}

async fn fail_to_subscribe(how: ReplyLost, times: usize) {
    let (server, proxy, proxied, direct) = behind_proxy().await;
    proxy.forget();
    let rules: Vec<_> = (1..=times).map(|nth| proxy.drop_reply(is_subscribe, nth, how)).collect();
    let held = direct.lock("x").acquire().await.unwrap();
    let lock = proxied.lock("x");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    until(&direct, "x", |info| info.waiting == 1).await;
    command(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    proxy.wait_until("the first attempt is lost", |proxy| proxy.strikes(rules[0]) == 1);
    drop(held);
    let guard = tokio::time::timeout(ms(10_000), waiter).await.expect("in time");
    drop(guard.unwrap().unwrap());
    until_free(&direct, "x").await;
    let last = rules[times - 1];
    proxy.wait_until("the last attempt is lost", |proxy| proxy.strikes(last) == 1);
    proxy.wait_until("it is subscribed", |proxy| proxy.seen(is_subscribe) == times + 1);
}

/// The connection is open but carries no data any more. The client detects it in some five seconds, and
/// subscribes again: the next grant is notified at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_a_dead_subscription_subscribes_again() {
    let (_server, proxy, proxied, direct) = behind_proxy().await;
    proxy.forget();
    let rule = proxy.drop_reply(is_ping, 1, ReplyLost::Silence);
    proxy.wait_until("the connection is dead", |proxy| proxy.strikes(rule) == 1);
    proxy.wait_until("it subscribes again", |proxy| proxy.seen(is_subscribe) == 1);
    let held = direct.lock("x").acquire().await.unwrap();
    let lock = proxied.lock("x");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    until(&direct, "x", |info| info.waiting == 1).await;
    drop(held);
    let guard = tokio::time::timeout(SOON, waiter).await.expect("the grant is received");
    drop(guard.unwrap().unwrap());
}

/// All connections for wake-ups are killed at once, while six clients wait: they were served 3, 4, 0, 5,
/// 1, 2. One without a receiver keeps its place. I10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_served_in_order_though_their_connections_are_cut() {
    let server = Server::start();
    let holder = connect(&server.url()).await;
    let held = holder.lock("x").acquire().await.unwrap();
    let (served, mut order) = tokio::sync::mpsc::unbounded_channel();
    for at in 0..6 {
        let tenure = connect(&server.url()).await;
        let served = served.clone();
        tokio::spawn(async move {
            let guard = tenure.lock("x").fair().acquire().await.unwrap();
            served.send(at).unwrap();
            guard.release().await.unwrap();
        });
        until(&holder, "x", |info| info.waiting == at + 1).await;
    }
    command(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    held.release().await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..6 {
        seen.push(tokio::time::timeout(SOON, order.recv()).await.expect("in time").unwrap());
    }
    assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
}
