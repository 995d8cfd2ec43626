//! What the fallback does not replace (R22).

use std::time::Duration;

use tenure::{Error, Fallback, Tenure, Wait, acquire_all};
use tenure_testkit::{Proxy, Server};

use super::fixture::{LONG, ms, pass};
use crate::waiting::until_well;

/// A client with a fallback, and the proxy that cuts it off.
async fn degradable(fallback: Fallback, patience: Duration) -> (Server, Proxy, Tenure) {
    let server = Server::builder().on_port().start();
    let proxy = Proxy::start(&server);
    let builder = Tenure::builder().fallback(fallback).patience(patience);
    let tenure = builder.connect(&proxy.url()).await.unwrap();
    (server, proxy, tenure)
}

fn cut_off(proxy: &Proxy) {
    proxy.refuse(true);
    proxy.cut();
}

/// I6: a count was reported as done, and was nowhere after the outage; parties and waiters that began in it were never served; and a
/// leader of the fallback went on beside that of the store. None of them has a guard that says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latches_barriers_and_elections_have_no_fallback() {
    let (_server, proxy, tenure) = degradable(Fallback::Process, ms(100)).await;
    cut_off(&proxy);
    let held = tenure.lock("x").acquire().await.unwrap();
    assert!(held.is_degraded(), "a mutex has one");
    let refused = [
        tenure.latch("l", 1).count_down().await.unwrap_err(),
        tenure.latch("l", 1).wait().await.unwrap_err(),
        tenure.barrier("b", 2).wait().await.map(drop).unwrap_err(),
        tenure.election("e").campaign().await.map(drop).unwrap_err(),
        tenure.election("e").try_campaign().await.map(drop).unwrap_err(),
    ];
    for error in refused {
        assert!(matches!(error, Error::Unreachable { .. } | Error::Unknown { .. }), "{error}");
    }
}

/// A mutex of the fallback excluded the other tasks of its client, but not those that wanted several locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_locks_respect_a_mutex_of_the_fallback() {
    let (_server, proxy, tenure) = degradable(Fallback::Process, ms(100)).await;
    cut_off(&proxy);
    let held = tenure.lock("x").acquire().await.unwrap();
    assert!(held.is_degraded());
    proxy.refuse(false);
    until_well(&tenure).await;
    let both = || [tenure.lock("x"), tenure.lock("y")];
    let refused = acquire_all(both(), Wait::within(ms(300))).await.unwrap_err();
    assert!(matches!(refused, Error::TimedOut { .. }), "{refused}");
    held.release().await.unwrap();
    assert!(!acquire_all(both(), Wait::within(LONG)).await.unwrap().is_degraded());
}

/// A client without patience, which waits for the store, asked again and again without a pause, and used a core.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_the_store_pauses_between_attempts() {
    let (_server, proxy, tenure) = degradable(Fallback::Wait, Duration::ZERO).await;
    cut_off(&proxy);
    pass(ms(300)).await;
    let lock = tenure.lock("x");
    let mut waiting = Box::pin(lock.acquire_within(LONG));
    let mut polls = 0;
    let counted = std::future::poll_fn(|context| {
        polls += 1;
        waiting.as_mut().poll(context)
    });
    tokio::time::timeout(Duration::from_secs(1), counted).await.unwrap_err();
    assert!(polls < 200, "polled {polls} times in a second");
    proxy.refuse(false);
    drop(waiting.await.unwrap());
}
