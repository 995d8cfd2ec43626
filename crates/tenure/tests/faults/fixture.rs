//! The fixture of the tests with faults.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tenure::{LockInfo, Tenure};

use crate::common::{ms, pass};

pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Polls a future once, with a waker that does nothing.
pub(crate) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// Waits until the store shows the expected state; panics after a long time.
pub(crate) async fn until(tenure: &Tenure, name: &str, is_so: impl Fn(&LockInfo) -> bool) {
    let lock = tenure.lock(name);
    let seen = tokio::time::timeout(LONG, async {
        while !is_so(&lock.inspect().await.unwrap()) {
            pass(ms(1)).await;
        }
    });
    if seen.await.is_err() {
        panic!("it stays: {:?}", lock.inspect().await);
    }
}

/// Waits until a lock has no holder and no waiter.
pub(crate) async fn until_free(tenure: &Tenure, name: &str) {
    until(tenure, name, |info| info.is_free() && info.waiting == 0).await;
}

/// Waits until the queue has this many waiters.
pub(crate) async fn until_waiting(tenure: &Tenure, name: &str, count: usize) {
    until(tenure, name, |info| info.waiting == count).await;
}
