//! Readers, permits, latches, barriers and several locks, where messages and connections are lost.

use std::time::Duration;

use tenure::{Error, Released, Tenure, Wait, acquire_all};
use tenure_testkit::proxy::Direction;
use tokio::task::JoinHandle;

use super::fixture::{LONG, behind_proxy, calls, connect, ms, pass, until, until_free};

/// A waiter asks every five seconds; an answer takes a moment, also where others benchmark.
const BOUND: Duration = Duration::from_secs(9);

type Waiter = JoinHandle<Result<(), Error>>;

/// One waiter of each kind behind the proxy: a reader, a writer, and those who wait for a permit, a
/// latch and a party.
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

/// I7, R27: every message is lost, and whoever waits gets on within the bound.
#[tokio::test]
async fn lost_messages_cost_every_kind_bounded_time() {
    let (_server, proxy, troubled, calm) = behind_proxy().await;
    let written = calm.rwlock("written").write().await.unwrap();
    let read = calm.rwlock("read").read().await.unwrap();
    let permits = calm.semaphore("permits", 2).acquire_many(2).await.unwrap();
    proxy.drop_messages(true);
    proxy.forget();
    let waiters = one_of_each(&troubled);
    for (name, _) in &waiters {
        until(&calm, name, |info| info.waiting == 1).await;
    }
    drop((written, read, permits));
    calm.latch("latch", 1).count_down().await.unwrap();
    calm.barrier("barrier", 2).wait_within(LONG).await.unwrap();
    let all = tokio::time::timeout(BOUND, async {
        for (name, waiter) in waiters {
            waiter.await.unwrap().unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    });
    all.await.expect("all got on");
    assert!(proxy.messages() >= 5, "each was told, and did not hear it");
    for name in ["written", "read", "permits", "barrier"] {
        until_free(&calm, name).await;
    }
}

/// I7, R27: with messages nobody waits for a heartbeat, also not those who wait in great number.
#[tokio::test]
async fn a_latch_opens_for_many_waiters_at_once() {
    let (server, _proxy, troubled, calm) = behind_proxy().await;
    let mut others = Vec::new();
    for _ in 0..50 {
        others.push(connect(&server.url()).await);
    }
    let of_one = (0..200).map(|_| troubled.latch("one", 2));
    let of_many = others.iter().map(|other| other.latch("many", 2));
    let waiters: Vec<Waiter> = of_one
        .chain(of_many)
        .map(|latch| tokio::spawn(async move { latch.wait().await }))
        .collect();
    until(&calm, "one", |info| info.waiting == 200).await;
    until(&calm, "many", |info| info.waiting == 50).await;
    for name in ["one", "many"] {
        calm.latch(name, 2).count_down().await.unwrap();
    }
    pass(ms(50)).await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "one is missing");
    for name in ["one", "many"] {
        calm.latch(name, 2).count_down().await.unwrap();
    }
    let all = tokio::time::timeout(ms(4_000), async {
        for waiter in waiters {
            waiter.await.unwrap().unwrap();
        }
    });
    all.await.expect("open for all");
    for name in ["one", "many"] {
        assert_eq!(calm.lock(name).inspect().await.unwrap().waiting, 0);
    }
}

/// R27: where all are free, one call is enough for all of them, and few end them.
#[tokio::test]
async fn twenty_free_locks_take_one_call() {
    let (server, proxy, troubled, calm) = behind_proxy().await;
    let names: Vec<_> = (0..20).map(|number| format!("account/{number:02}")).collect();
    // The scripts are loaded, and the connections are there.
    drop(acquire_all([troubled.lock("first")], Wait::forever()).await.unwrap());
    until_free(&calm, "first").await;
    let (acquires, releases) = (calls(&server, "acquire"), calls(&server, "release"));
    proxy.forget();
    let locks = names.iter().map(|name| troubled.lock(name.as_str()));
    let guards = acquire_all(locks, Wait::forever()).await.unwrap();
    assert_eq!(proxy.seen(&acquires), 1, "{:?}", proxy.counts());
    assert_eq!(proxy.requests().len(), 1, "{:?}", proxy.counts());
    for name in &names {
        assert!(!calm.lock(name.as_str()).inspect().await.unwrap().is_free());
    }
    proxy.forget();
    // However fast the server is: the first departs at once, and the others together, while it is under way.
    let first = proxy.hold(releases.clone(), Direction::Replies);
    let releasing = tokio::spawn(guards.release());
    while proxy.strikes(first) == 0 {
        pass(ms(1)).await;
    }
    proxy.release();
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Now);
    assert!(proxy.seen(&releases) < names.len(), "{:?}", proxy.counts());
    for name in &names {
        assert!(calm.lock(name.as_str()).inspect().await.unwrap().is_free());
    }
}

/// I7, R27: the barrier opens, and the connections of a party are cut before it hears of it. It asks
/// when they are there again, and finds it open, long before its next heartbeat.
#[tokio::test]
async fn a_party_that_is_cut_off_after_the_opening_gets_through() {
    let (_server, proxy, troubled, calm) = behind_proxy().await;
    let barrier = troubled.barrier("x", 2);
    let party = tokio::spawn(async move { barrier.wait().await });
    until(&calm, "x", |info| info.waiting == 1).await;
    proxy.drop_messages(true);
    calm.barrier("x", 2).wait_within(LONG).await.unwrap();
    proxy.cut();
    proxy.drop_messages(false);
    tokio::time::timeout(ms(4_000), party).await.expect("it asks").unwrap().unwrap();
    until_free(&calm, "x").await;
}

/// I7, R27: the same, with the connections cut before the opening and there again after it.
#[tokio::test]
async fn a_party_that_is_cut_off_before_the_opening_gets_through() {
    let (_server, proxy, troubled, calm) = behind_proxy().await;
    let barrier = troubled.barrier("x", 2);
    let party = tokio::spawn(async move { barrier.wait().await });
    until(&calm, "x", |info| info.waiting == 1).await;
    proxy.refuse(true);
    proxy.cut();
    pass(ms(100)).await;
    calm.barrier("x", 2).wait_within(LONG).await.unwrap();
    proxy.refuse(false);
    tokio::time::timeout(BOUND, party).await.expect("it asks").unwrap().unwrap();
    until_free(&calm, "x").await;
}
