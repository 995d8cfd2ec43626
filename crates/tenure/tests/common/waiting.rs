//! Waiting for what a test expects.

#![allow(dead_code, reason = "each test program uses some of it")]

use std::time::{Duration, Instant};

use tenure::{Error, Guard, Lock, Tenure};

/// Far longer than anything that is waited for takes: a failover, also where two candidates split the vote.
pub(crate) const LONG: Duration = Duration::from_secs(60);

#[expect(clippy::disallowed_methods, reason = "tests measure how long something takes")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "tests wait for leases to end")]
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let seen = tokio::time::timeout(LONG, async {
        while !is_so().await {
            pass(Duration::from_millis(10)).await;
        }
    });
    assert!(seen.await.is_ok(), "{what}: not within {LONG:?}");
}

pub(crate) async fn until_well(tenure: &Tenure) {
    until("the client is connected", async || tenure.health().is_well()).await;
}

/// Acquires as soon as the store can be reached.
pub(crate) async fn acquire_when_reachable(lock: &Lock) -> Guard {
    let mut acquired = None;
    until("the lock is acquired", async || match lock.acquire().await {
        Ok(guard) => {
            acquired = Some(guard);
            true
        }
        Err(Error::Unreachable { .. } | Error::Unknown { .. }) => false,
        Err(error) => panic!("{error}"),
    })
    .await;
    acquired.unwrap()
}
