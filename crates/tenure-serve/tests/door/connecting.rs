//! A store that cannot be connected to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tenure::Tenure;
use tenure_serve::{Client, Connect};

use crate::fixture::{Fixture, Options};

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
