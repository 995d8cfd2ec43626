//! Metrics (R21): the outcome of acquires and how long they waited, how long locks were held, renewals and
//! losses.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tenure::engine::MemoryEngine;
use tenure::{Tenure, Wait};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Counters by their name and label, and how many values each histogram has; the histograms' values
/// themselves beside them.
#[derive(Default, Debug)]
struct Seen {
    counts: BTreeMap<String, u64>,
    values: BTreeMap<String, Vec<f64>>,
    gauges: BTreeMap<String, f64>,
}

impl Seen {
    /// Adds the values recorded since the last call.
    fn look(&mut self, metrics: &Snapshotter) {
        for (key, _, _, value) in metrics.snapshot().into_vec() {
            let labels = key.key().labels().map(|label| format!(" {}", label.value()));
            let name = format!("{}{}", key.key().name(), labels.collect::<String>());
            match value {
                // A look sets the recorder's values to zero.
                DebugValue::Counter(count) => *self.counts.entry(name).or_default() += count,
                DebugValue::Histogram(values) => {
                    let values = values.into_iter().map(|value| value.into_inner());
                    self.values.entry(name).or_default().extend(values);
                }
                DebugValue::Gauge(value) => {
                    *self.gauges.entry(name).or_default() += value.into_inner()
                }
            }
        }
    }

    fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }
}

#[tokio::test]
async fn metrics_report_the_outcome_of_locks() {
    let recorder = DebuggingRecorder::new();
    let metrics = recorder.snapshotter();
    recorder.install().unwrap();
    let store = MemoryEngine::new();
    let client = || Tenure::builder().engine(store.another()).unwrap();
    let (a, b) = (client(), client());

    let held = a.lock("x").lease(ms(300)).acquire().await.unwrap();
    assert!(b.lock("x").try_acquire().await.unwrap().is_none());
    b.lock("x").acquire_with(Wait::attempts(1)).await.unwrap_err();
    b.lock("x").acquire_within(ms(400)).await.unwrap_err();
    held.release().await.unwrap();
    let forced = a.lock("x").acquire().await.unwrap();
    b.lock("x").force_release("a test").await.unwrap();
    forced.lost().await;

    let mut seen = Seen::default();
    seen.look(&metrics);
    let acquires = |name: &str| seen.count(&format!("tenure_acquires_total {name}"));
    assert_eq!(
        (acquires("acquired"), acquires("busy"), acquires("timed_out")),
        (2, 2, 1),
        "{seen:?}"
    );
    assert!(seen.count("tenure_renewals_total extended") >= 1, "{seen:?}");
    assert_eq!(seen.count("tenure_losses_total forced"), 1, "{seen:?}");
    let slack = &seen.values["tenure_renewal_slack_seconds"];
    assert!(slack.iter().all(|left| *left > 0.0 && *left < 0.3), "{slack:?}");
    assert!(!seen.values["tenure_round_trip_seconds"].is_empty(), "{seen:?}");
    let waits = &seen.values["tenure_wait_seconds"];
    assert_eq!(waits.len(), 5, "{waits:?}");
    assert!(waits.iter().any(|wait| *wait >= 0.4 && *wait < 5.0), "{waits:?}");
    let holds = &seen.values["tenure_hold_seconds"];
    assert!(holds.len() == 1 && holds[0] >= 0.4 && holds[0] < 5.0, "{holds:?}");
    assert_eq!(seen.gauges["tenure_held"], 0.0, "{seen:?}");

    let grouped = |client: &Tenure| client.lock("orders/42").group("orders");
    let held = grouped(&a).acquire().await.unwrap();
    let (remote, local) = (grouped(&b), grouped(&b));
    let waiters =
        [remote, local].map(|lock| tokio::spawn(async move { lock.acquire().await.unwrap() }));
    while a.lock("orders/42").inspect().await.unwrap().waiting == 0 {
        tokio::task::yield_now().await;
    }
    seen.look(&metrics);
    assert_eq!(seen.gauges["tenure_held orders"], 1.0, "{seen:?}");
    assert!(seen.gauges["tenure_waiting orders"] >= 1.0, "{seen:?}");
    held.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().release().await.unwrap();
    }
    seen.look(&metrics);
    assert_eq!(seen.count("tenure_acquires_total orders acquired"), 3, "{seen:?}");
    assert_eq!(seen.count("tenure_handovers_total orders remote"), 1, "{seen:?}");
    assert_eq!(seen.count("tenure_handovers_total orders local"), 1, "{seen:?}");
    assert_eq!(
        (seen.gauges["tenure_held orders"], seen.gauges["tenure_waiting orders"]),
        (0.0, 0.0)
    );
}
