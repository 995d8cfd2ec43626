//! The health check and the metrics of the connections to a server (R21).

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tenure::Tenure;
use tenure_testkit::Server;

const LINKS: [&str; 3] = ["commands", "renewals", "wake-ups"];

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let seen = tokio::time::timeout(Duration::from_secs(20), async {
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

/// The gauges of the links, in their order.
fn gauges(metrics: &Snapshotter) -> Vec<f64> {
    let snapshot = metrics.snapshot().into_vec();
    let gauge = |link: &str| {
        snapshot.iter().find_map(|(key, _, _, value)| {
            let key = key.key();
            let is_it = key.name() == "tenure_link_up" && key.labels().any(|it| it.value() == link);
            match value {
                DebugValue::Gauge(value) if is_it => Some(value.into_inner()),
                _ => None,
            }
        })
    };
    LINKS.iter().map(|link| gauge(link).unwrap_or(f64::NAN)).collect()
}

/// R21: a server that ends and returns is reported for every link.
#[tokio::test]
async fn a_lost_server_is_reported_and_so_is_its_return() {
    let recorder = DebuggingRecorder::new();
    let metrics = recorder.snapshotter();
    recorder.install().unwrap();
    let mut server = Server::start();
    let tenure = Tenure::connect(&server.url()).await.unwrap();
    let health = tenure.health();
    assert!(health.is_well(), "{health:?}");
    assert_eq!(health.links.iter().map(|link| link.link).collect::<Vec<_>>(), LINKS);
    assert_eq!(gauges(&metrics), [1.0; 3]);

    server.kill();
    until("down", || tenure.health().links.iter().all(|link| !link.is_up)).await;
    assert_eq!(gauges(&metrics), [0.0; 3]);
    for link in tenure.health().links {
        let error = link.error.unwrap();
        assert!(error.contains("connect"), "{}: {error}", link.link);
    }

    server.restart();
    until("well again", || tenure.health().is_well()).await;
    assert_eq!(gauges(&metrics), [1.0; 3]);
    assert!(tenure.health().links.iter().all(|link| link.epoch == 2 && link.error.is_none()));
}
