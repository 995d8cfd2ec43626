//! Readers, permits, latches, barriers and several locks, with lost messages and connections.

use std::time::Duration;

use tenure::{Error, Released, Tenure, Wait, acquire_all};
use tenure_testkit::proxy::Direction;
use tokio::task::JoinHandle;

use super::fixture::{LONG, behind_proxy, calls, connect, ms, pass, until, until_free};

/// A waiter polls every five seconds; an answer may take a while on a busy machine.
const BOUND: Duration = Duration::from_secs(9);

type Waiter = JoinHandle<Result<(), Error>>;

/// One waiter of each kind behind the proxy: a reader, a writer, and waiters for a permit, a
/// latch and a barrier.
fn one_of_each(tenure: &Tenure) -> Vec<(&'static str, Waiter)> {
    let (reader, writer) = (tenure.rwlock("written"), tenure.rwlock("read"));
    let (permit, latch) = (tenure.semaphore("permits", 2), tenure.latch("latch", 1));
    let barrier = tenure.barrier("barrier", 2);
    vec![
        ("written", tokio::spawn(async move { reader.read().await.map(drop) })),
        ("read", tokio::spawn(async move { writer.write().await.map(drop) })),
        ("permits", tokio::spawn(async move { permit.acquire().await.map(drop) })),
        ("latch", tokio::spawn(async move { latch.wait().await })),
        ("barrier", tokio::spawn(async move { barrier.wait().await })),
    ]
}

/// I7, R27: every message is lost, and each waiter is served within the bound.
#[tokio::test]
async fn lost_messages_cost_every_kind_bounded_time() {
    let (_server, proxy, proxied, direct) = behind_proxy().await;
    let written = direct.rwlock("written").write().await.unwrap();
    let read = direct.rwlock("read").read().await.unwrap();
    let permits = direct.semaphore("permits", 2).acquire_many(2).await.unwrap();
    proxy.drop_messages(true);
    proxy.forget();
    let waiters = one_of_each(&proxied);
    for (name, _) in &waiters {
        until(&direct, name, |info| info.waiting == 1).await;
    }
    drop((written, read, permits));
    direct.latch("latch", 1).count_down().await.unwrap();
    direct.barrier("barrier", 2).wait_within(LONG).await.unwrap();
    let all = tokio::time::timeout(BOUND, async {
        for (name, waiter) in waiters {
            waiter.await.unwrap().unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    });
    all.await.expect("all are served");
    assert!(proxy.messages() >= 5, "each message was sent, and lost");
    for name in ["written", "read", "permits", "barrier"] {
        until_free(&direct, name).await;
    }
}

/// I7, R27: with messages no waiter waits for a heartbeat, even if there are many.
#[tokio::test]
async fn a_latch_opens_for_many_waiters_at_once() {
    let (server, _proxy, proxied, direct) = behind_proxy().await;
    let mut others = Vec::new();
    for _ in 0..50 {
        others.push(connect(&server.url()).await);
    }
    let of_one = (0..200).map(|_| proxied.latch("one", 2));
    let of_many = others.iter().map(|other| other.latch("many", 2));
    let waiters: Vec<Waiter> = of_one
        .chain(of_many)
        .map(|latch| tokio::spawn(async move { latch.wait().await }))
        .collect();
    until(&direct, "one", |info| info.waiting == 200).await;
    until(&direct, "many", |info| info.waiting == 50).await;
    for name in ["one", "many"] {
        direct.latch(name, 2).count_down().await.unwrap();
    }
    pass(ms(50)).await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "one is missing");
    for name in ["one", "many"] {
        direct.latch(name, 2).count_down().await.unwrap();
    }
    let all = tokio::time::timeout(ms(4_000), async {
        for waiter in waiters {
            waiter.await.unwrap().unwrap();
        }
    });
    all.await.expect("open for all");
    for name in ["one", "many"] {
        assert_eq!(direct.lock(name).inspect().await.unwrap().waiting, 0);
    }
}

/// R27: if all are free, one call acquires all of them, and few calls release them.
#[tokio::test]
async fn twenty_free_locks_take_one_call() {
    let (server, proxy, proxied, direct) = behind_proxy().await;
    let names: Vec<_> = (0..20).map(|number| format!("account/{number:02}")).collect();
    // The scripts are loaded, and the connections are up.
    drop(acquire_all([proxied.lock("first")], Wait::forever()).await.unwrap());
    until_free(&direct, "first").await;
    let (acquires, releases) = (calls(&server, "acquire"), calls(&server, "release"));
    proxy.forget();
    let locks = names.iter().map(|name| proxied.lock(name.as_str()));
    let guards = acquire_all(locks, Wait::forever()).await.unwrap();
    assert_eq!(proxy.seen(&acquires), 1, "{:?}", proxy.counts());
    assert_eq!(proxy.requests().len(), 1, "{:?}", proxy.counts());
    for name in &names {
        assert!(!direct.lock(name.as_str()).inspect().await.unwrap().is_free());
    }
    proxy.forget();
    // However fast the server is: the first is sent at once, and the others together, while it is in flight.
    let first = proxy.hold(releases.clone(), Direction::Replies);
    let releasing = tokio::spawn(guards.release());
    while proxy.strikes(first) == 0 {
        pass(ms(1)).await;
    }
    proxy.release();
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Now);
    assert!(proxy.seen(&releases) < names.len(), "{:?}", proxy.counts());
    for name in &names {
        assert!(direct.lock(name.as_str()).inspect().await.unwrap().is_free());
    }
}

/// I7, R27: the barrier opens, and the connections of a party are cut before it is notified. It polls
/// after the reconnect, and finds it open, long before its next heartbeat.
#[tokio::test]
async fn a_party_that_is_cut_off_after_the_opening_gets_through() {
    let (_server, proxy, proxied, direct) = behind_proxy().await;
    let barrier = proxied.barrier("x", 2);
    let party = tokio::spawn(async move { barrier.wait().await });
    until(&direct, "x", |info| info.waiting == 1).await;
    proxy.drop_messages(true);
    direct.barrier("x", 2).wait_within(LONG).await.unwrap();
    proxy.cut();
    proxy.drop_messages(false);
    tokio::time::timeout(ms(4_000), party).await.expect("it polls").unwrap().unwrap();
    until_free(&direct, "x").await;
}

/// I7, R27: the same, with the connections cut before the opening and re-established after it.
#[tokio::test]
async fn a_party_that_is_cut_off_before_the_opening_gets_through() {
    let (_server, proxy, proxied, direct) = behind_proxy().await;
    let barrier = proxied.barrier("x", 2);
    let party = tokio::spawn(async move { barrier.wait().await });
    until(&direct, "x", |info| info.waiting == 1).await;
    proxy.refuse(true);
    proxy.cut();
    pass(ms(100)).await;
    direct.barrier("x", 2).wait_within(LONG).await.unwrap();
    proxy.refuse(false);
    tokio::time::timeout(BOUND, party).await.expect("it polls").unwrap().unwrap();
    until_free(&direct, "x").await;
}
