//! Work that goes on without a caller, on the driver's thread.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use super::watch::Watch;
use super::{Driver, foreign};
use crate::clock;
use crate::parking;

impl Driver {
    /// Runs a future on the driver's thread, whatever becomes of the caller (I8).
    pub(crate) fn spawn(self: &Arc<Self>, future: impl Future<Output = ()> + Send + 'static) {
        // What it awaits was often sent by this thread, which now need not wait for it.
        parking::leave_to_others();
        let running = Running::new(self);
        self.spawner.spawn(async move {
            let mut future = pin!(future);
            let finished = poll_fn(|context| {
                let polled = foreign::call(|| future.as_mut().poll(context));
                polled.map_or(Poll::Ready(false), |polled| polled.map(|()| true))
            });
            if !finished.await {
                running.driver.end();
            }
            drop(running);
        });
    }

    /// Resolves when nothing is left to clean up, or the time is over. True in the first case.
    pub(crate) async fn quiet_within(&self, time: Duration) -> bool {
        self.before(clock::now() + time, self.quiet()).await.is_some()
    }

    async fn quiet(&self) {
        let Background { running, idle } = &self.background;
        idle.until(|| (running.load(Ordering::SeqCst) == 0).then_some(())).await;
    }
}

/// Work that goes on without a caller.
#[derive(Default)]
pub(super) struct Background {
    running: AtomicUsize,
    pub(super) idle: Watch,
}

/// One piece of it, until it is done, or dropped with the thread.
struct Running {
    driver: Arc<Driver>,
}

impl Running {
    fn new(driver: &Arc<Driver>) -> Self {
        driver.background.running.fetch_add(1, Ordering::SeqCst);
        Self { driver: driver.clone() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Background { running, idle } = &self.driver.background;
        if running.fetch_sub(1, Ordering::SeqCst) == 1 {
            idle.announce();
        }
    }
}
