//! A subscriber that blocks: its output is a pipe that no process reads.
//!
//! It is global to the process, so this is a program of its own.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tenure::Tenure;
use tenure_testkit::Server;
use tracing::span;

const LEASE: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(30);

/// Whether an event was logged, and whether the log is blocked.
static WAS_CALLED: AtomicBool = AtomicBool::new(false);
static IS_BLOCKED: Mutex<bool> = Mutex::new(true);
static CHANGED: Condvar = Condvar::new();

struct Log;

impl tracing::Subscriber for Log {
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
            WAS_CALLED.store(true, SeqCst);
            let is_blocked = IS_BLOCKED.lock().unwrap();
            drop(CHANGED.wait_while(is_blocked, |is_blocked| *is_blocked).unwrap());
        }
    }

    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[expect(clippy::disallowed_methods, reason = "only time must pass")]
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// I9: a warning of the driver blocked its thread. No lease was renewed any more, and no loss was notified.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_blocks_delays_no_renewal_and_no_notice() {
    tracing::subscriber::set_global_default(Log).unwrap();
    let server = Server::start();
    let holder = Tenure::builder().warn_held_after(Duration::from_millis(100));
    let holder = holder.connect(&server.url()).await.unwrap();
    let other = Tenure::connect(&server.url()).await.unwrap();
    let kept = holder.lock("kept").lease(LEASE).acquire().await.unwrap();
    let taken = Arc::new(holder.lock("taken").lease(LEASE).acquire().await.unwrap());
    let watched = taken.clone();
    let lost = tokio::spawn(async move { watched.lost().await });

    pass(LEASE * 3).await;
    assert!(WAS_CALLED.load(SeqCst), "the lock is held for long, which is logged");
    assert!(other.lock("kept").try_acquire().await.unwrap().is_none(), "it was renewed");
    kept.ensure_held().unwrap();

    other.lock("taken").force_release("the test").await.unwrap();
    tokio::time::timeout(LONG, lost).await.expect("the loss is notified").unwrap();
    *IS_BLOCKED.lock().unwrap() = false;
    CHANGED.notify_all();
}
