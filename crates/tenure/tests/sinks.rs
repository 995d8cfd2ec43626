//! Metrics, events and wake-ups go to foreign code. It may panic or ask for the client's health, and locks
//! are not affected.
//!
//! The sinks are global to the process, so this is a program of its own.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Once};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tenure::{Released, Tenure};
use tenure_testkit::Server;
use tracing::span;

const LONG: Duration = Duration::from_secs(20);

/// How often a sink was called, and whether it panics.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static PANICS: AtomicBool = AtomicBool::new(false);
/// The client whose health a sink reads.
static ASKED: Mutex<Option<Tenure>> = Mutex::new(None);

/// What each sink does.
fn misbehave() {
    CALLS.fetch_add(1, SeqCst);
    let client = ASKED.lock().unwrap().clone();
    if let Some(client) = client {
        assert_eq!(client.health().links.len(), 3);
    }
    assert!(!PANICS.load(SeqCst), "a sink that panics, as this test wants it to");
}

struct Sink;

impl Recorder for Sink {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        misbehave();
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        misbehave();
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        misbehave();
        Histogram::noop()
    }
}

impl tracing::Subscriber for Sink {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        if event.metadata().target().starts_with("tenure") {
            misbehave();
        }
    }

    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        metrics::set_global_recorder(Sink).unwrap();
        tracing::subscriber::set_global_default(Sink).unwrap();
    });
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let seen = tokio::time::timeout(LONG, async {
        while !is_so() {
            pause().await;
        }
    });
    seen.await.unwrap_or_else(|_| panic!("never {what}"));
}

#[expect(clippy::disallowed_methods, reason = "the test polls")]
async fn pause() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

/// I9: a server ends and returns while every sink panics and reads the health of the client. The health
/// reports it, and locks are renewed, acquired and released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sinks_that_panic_and_ask_harm_nothing() {
    install();
    let mut server = Server::builder().persistent().start();
    let tenure = Tenure::connect(&server.url()).await.unwrap();
    *ASKED.lock().unwrap() = Some(tenure.clone());
    PANICS.store(true, SeqCst);
    let before = CALLS.load(SeqCst);
    let guard = tenure.lock("x").lease(Duration::from_secs(15)).acquire().await.unwrap();
    server.kill();
    until("down", || tenure.health().links.iter().all(|link| !link.is_up)).await;
    server.restart();
    until("well again", || tenure.health().is_well()).await;
    assert!(CALLS.load(SeqCst) > before + 6, "each link was reported down and up");
    let next = tokio::time::timeout(LONG, tenure.lock("y").acquire()).await.expect("it answers");
    assert_eq!(next.unwrap().release().await.unwrap(), Released::Now);
    guard.ensure_held().unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Now);
    PANICS.store(false, SeqCst);
    *ASKED.lock().unwrap() = None;
}

/// A waker that panics when it is called.
struct Trap(AtomicBool);

impl Wake for Trap {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
        panic!("a waker that panics, as this test wants it to");
    }
}

/// I7: a task of a foreign executor, whose waker panics, awaits an answer. The I/O thread wakes it. Other
/// tasks still get their answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waker_that_panics_harms_no_other_task() {
    let server = Server::start();
    let tenure = Tenure::connect(&server.url()).await.unwrap();
    for round in 0..5 {
        let trap = Arc::new(Trap(AtomicBool::new(false)));
        let lock = tenure.lock(format!("trap/{round}"));
        {
            let mut acquire = pin!(lock.acquire());
            let waker = Waker::from(trap.clone());
            let polled = acquire.as_mut().poll(&mut Context::from_waker(&waker));
            if matches!(polled, Poll::Pending) {
                until("woken", || trap.0.load(SeqCst)).await;
            }
        }
        let other = tenure.lock("x");
        let guard = tokio::time::timeout(LONG, other.acquire()).await.expect("it answers").unwrap();
        assert!(tenure.health().is_well(), "{:?}", tenure.health());
        guard.release().await.unwrap();
    }
}
