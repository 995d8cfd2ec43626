//! Spans and warnings of `tracing` (R21), as a subscriber sees them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::engine::MemoryEngine;
use tenure::{Tenure, Wait};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Writes down what it sees, a line each.
#[derive(Clone, Default)]
struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    spans: Arc<AtomicU64>,
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Log {
    fn add(&self, head: String, record: impl FnOnce(&mut Line)) {
        let mut line = Line(head);
        record(&mut line);
        self.lines.lock().unwrap().push(line.0);
    }

    fn find(&self, parts: &[&str]) -> Option<String> {
        let lines = self.lines.lock().unwrap();
        lines.iter().find(|line| parts.iter().all(|part| line.contains(part))).cloned()
    }

    fn assert_has(&self, parts: &[&str]) {
        assert!(self.find(parts).is_some(), "{parts:?} in {:#?}", self.lines.lock().unwrap());
    }

    /// Log events of the driver are written by a thread of their own.
    async fn until_has(&self, parts: &[&str]) {
        let seen = tokio::time::timeout(Duration::from_secs(20), async {
            while self.find(parts).is_none() {
                pause().await;
            }
        });
        let _ = seen.await;
        self.assert_has(parts);
    }
}

#[expect(clippy::disallowed_methods, reason = "the test polls")]
async fn pause() {
    tokio::time::sleep(ms(2)).await;
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tenure")
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let id = self.spans.fetch_add(1, Ordering::SeqCst) + 1;
        let head = format!("{} {id}", attributes.metadata().name());
        self.add(head, |line| attributes.record(line));
        span::Id::from_u64(id)
    }

    fn record(&self, id: &span::Id, values: &span::Record<'_>) {
        self.add(format!("record {}", id.into_u64()), |line| values.record(line));
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        self.add("event".to_owned(), |line| event.record(line));
    }

    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}

    fn try_close(&self, id: span::Id) -> bool {
        self.add(format!("close {}", id.into_u64()), |_| {});
        true
    }
}

#[tokio::test]
async fn an_acquire_its_wait_and_its_hold_are_spans() {
    let log = Log::default();
    // For all threads: renewals run on one of their own.
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    let store = MemoryEngine::new();
    let client = || Tenure::builder().engine(store.another()).unwrap();
    let (a, b) = (client(), client());
    let held = a.lock("x").lease(ms(300)).note("nightly").acquire().await.unwrap();
    let fence = format!("tenure.fence={}", held.fence());
    log.assert_has(&[
        "acquire ",
        "db.collection.name=x",
        "otel.kind=\"client\"",
        "db.system.name=\"memory\"",
    ]);
    log.assert_has(&["record ", &fence]);
    log.assert_has(&["hold ", "db.collection.name=x", &fence]);
    let hold = log.find(&["hold "]).unwrap();
    let closed = format!("close {}", hold.split(' ').nth(1).unwrap());

    b.lock("x").acquire_with(Wait::within(ms(400))).await.unwrap_err();
    log.assert_has(&["wait ", "db.collection.name=x"]);
    log.assert_has(&["record ", "error.type=\"timed_out\""]);
    log.assert_has(&["renew ", "db.operation.batch.size=1"]);
    assert_eq!(log.find(&[&closed]), None);
    held.release().await.unwrap();
    log.assert_has(&["release ", "db.operation.name=\"release\""]);
    log.assert_has(&[&closed]);

    warnings(&log, &store).await;
}

/// In the same test, because a subscriber is global.
async fn warnings(log: &Log, store: &MemoryEngine) {
    let builder = Tenure::builder().warn_held_after(ms(150)).warn_waiting_after(ms(100));
    let tenure = builder.engine(store.another()).unwrap();
    let lock = tenure.lock("reports").lease(ms(300)).note("nightly");
    let held = lock.acquire().await.unwrap();
    lock.acquire_with(Wait::within(ms(400))).await.unwrap_err();
    let waiting =
        ["event", "still waiting for a lock", "lock=reports", "note=\"nightly\"", "holder="];
    log.assert_has(&waiting);
    log.until_has(&["event", "a lock is held for long", "lock=reports", "note=\"nightly\""]).await;
    let count =
        |part: &str| log.lines.lock().unwrap().iter().filter(|line| line.contains(part)).count();
    assert_eq!(count("held for long"), 1, "once");
    tenure.lock("reports").force_release("a test").await.unwrap();
    held.lost().await;
    let lost = ["event", "lock lost", "lock=reports", "is_forced=true", "note=\"nightly\""];
    log.until_has(&lost).await;
}
