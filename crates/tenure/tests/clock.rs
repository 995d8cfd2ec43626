//! A real server whose clock is set while locks are held. Leases end by that clock (A2): the effect of a step
//! is bounded, detected and reported.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::OnceLock;
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tenure::{Tenure, WhyLost};
use tenure_testkit::{Clock, Server};

const LONG: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3600);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn server() -> (Clock, Server) {
    let clock = Clock::new();
    let server = Server::builder().program(clock.program()).start();
    (clock, server)
}

/// Metrics are installed once for all tests of this file.
fn metrics() -> &'static Snapshotter {
    static METRICS: OnceLock<Snapshotter> = OnceLock::new();
    METRICS.get_or_init(|| {
        let recorder = DebuggingRecorder::new();
        let metrics = recorder.snapshotter();
        recorder.install().unwrap();
        metrics
    })
}

/// How many steps of a clock in this direction were detected.
fn steps(direction: &str) -> u64 {
    let is_meant = |key: &metrics::Key| {
        key.name() == "tenure_clock_steps_total"
            && key.labels().any(|label| label.value() == direction)
    };
    let found = metrics().snapshot().into_vec().into_iter();
    let counts =
        found.filter(|(key, ..)| is_meant(key.key())).map(|(_, _, _, value)| match value {
            DebugValue::Counter(count) => count,
            other => panic!("{other:?}"),
        });
    counts.sum()
}

#[expect(clippy::disallowed_methods, reason = "tests wait for renewals")]
async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let seen = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, seen).await.expect("in time");
}

/// Waits until the lease of a lock has been extended since its grant.
async fn until_renewed(tenure: &Tenure, name: &str) {
    let mut least = Duration::MAX;
    until(async || {
        let left = tenure.lock(name).inspect().await.unwrap().holders[0].lease_left;
        least = least.min(left);
        left > least
    })
    .await;
}

/// The clock was set forward by 31 s: a second holder entered at once, and the first was notified 10 s later.
/// Now it is notified with the next renewal of any lock of its client. I9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_set_forward_is_noticed_with_the_next_renewal() {
    let before = steps("forward");
    let (clock, server) = server();
    let holder = Tenure::connect(&server.url()).await.unwrap();
    let other = Tenure::connect(&server.url()).await.unwrap();
    let slow = holder.lock("slow").lease(secs(3000)).acquire().await.unwrap();
    let quick = holder.lock("quick").lease(secs(1)).acquire().await.unwrap();
    until_renewed(&other, "quick").await;

    clock.set_ahead(HOUR);
    let second = other.lock("slow").acquire_within(LONG).await.unwrap();
    // Its own next renewal is a thousand seconds away.
    let lost = tokio::time::timeout(LONG, slow.lost()).await.expect("with the next renewal");
    assert_eq!(lost.why(), WhyLost::NotHeld);
    assert_eq!(quick.lost().await.why(), WhyLost::NotHeld);
    assert!(second.fence() > slow.fence(), "I4");
    assert!(steps("forward") > before, "it is counted");
}

/// The clock was set back by an hour: a crashed holder kept its lock for 3,630 s. I7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_set_back_keeps_the_lock_of_a_crashed_holder_for_one_more_lease() {
    let (clock, server) = server();
    let tenure = Tenure::connect(&server.url()).await.unwrap();
    let crashed = tenure.lock("x").fixed_lease(secs(3)).acquire().await.unwrap();
    crashed.detach().await.unwrap();
    let waiting = tenure.lock("x");
    let waiting = tokio::spawn(async move { waiting.acquire_within(LONG).await });
    until(async || tenure.lock("x").inspect().await.unwrap().waiting == 1).await;
    clock.set_back(HOUR);
    let guard = waiting.await.unwrap().expect("long before the clock has caught up");
    guard.ensure_held().unwrap();
}

/// A live holder loses nothing, and the step is reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_set_back_is_reported_and_takes_nothing_from_a_holder() {
    let before = steps("back");
    let (clock, server) = server();
    let tenure = Tenure::connect(&server.url()).await.unwrap();
    let guard = tenure.lock("x").lease(secs(3)).acquire().await.unwrap();
    until_renewed(&tenure, "x").await;
    clock.set_back(HOUR);
    until(async || steps("back") > before).await;
    until_renewed(&tenure, "x").await;
    guard.ensure_held().unwrap();
    assert!(tenure.lock("x").try_acquire().await.unwrap().is_none(), "I1");
}
