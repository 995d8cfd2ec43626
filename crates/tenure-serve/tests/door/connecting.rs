//! A store that cannot be connected to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tenure::Tenure;
use tenure_serve::{Client, Connect};

use crate::fixture::{Fixture, Options, Stream, now, until};

/// How long an attempt to connect takes.
const ATTEMPT: Duration = Duration::from_millis(500);

/// Connects to nothing, slowly, and counts the attempts for requests.
#[expect(clippy::disallowed_methods, reason = "the store is slow")]
fn nowhere(attempts: &Arc<AtomicUsize>) -> Connect {
    let attempts = attempts.clone();
    Box::new(move |client| {
        if client == Client::Door {
            attempts.fetch_add(1, Ordering::Relaxed);
        }
        Box::pin(async {
            tokio::time::sleep(ATTEMPT).await;
            Tenure::connect("nonsense://").await
        })
    })
}

/// Each request would otherwise wait for the attempts of all that came before it.
#[test]
fn requests_share_one_attempt_to_connect_and_its_error() {
    let attempts = Arc::default();
    let connect = nowhere(&attempts);
    let fixture = Fixture::start(connect, Tenure::memory().unwrap(), None, Options::default());
    thread::scope(|scope| {
        for _ in 0..8 {
            // The request is right, so its sender is not to blame, whatever is wrong with the store's URL.
            scope.spawn(|| assert_eq!(fixture.get("/v1/locks").refused(503), "unavailable"));
        }
    });
    // A thread that was late may have begun a second one.
    assert!(attempts.load(Ordering::Relaxed) <= 2, "{attempts:?}");
    assert_eq!(fixture.get("/v1/locks").refused(503), "unavailable");
}

/// The pause after a reading spares the store; after one that failed there is nothing to be spared.
#[test]
fn the_return_of_the_store_is_noticed_soon() {
    let fixture = Fixture::redis();
    let _viewer = Stream::open(fixture.send("GET", "/v1/events", &[], "")).follows();
    let is_up = || fixture.get("/v1/health").ok()["up"] == true;
    until("it is read", is_up);
    let redis = fixture.redis.as_ref().unwrap();
    redis.pause(true);
    until("it is down", || !is_up());
    redis.pause(false);
    let back = now();
    until("it is up", is_up);
    assert!(back.elapsed() < Duration::from_secs(6), "{:?}", back.elapsed());
}
