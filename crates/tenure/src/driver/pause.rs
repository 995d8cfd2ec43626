//! Pauses before a request is tried again. They end early when the store can be reached again: a pause may be as long as
//! a second by then, and would be added to every failover.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Driver;
use super::watch::Watch;
use crate::clock;
use crate::core::moment::Moment;

/// How often the store could be reached again after it could not be.
#[derive(Default)]
pub(super) struct Returns {
    count: AtomicU64,
    watch: Watch,
}

/// The count when a request was sent: a return after that ends the pause that follows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Returned(u64);

impl Returns {
    fn so_far(&self) -> Returned {
        Returned(self.count.load(Ordering::SeqCst))
    }

    fn announce(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.watch.announce();
    }
}

/// Between two acquires that wait for a store which cannot be reached; until it returns at the latest.
const RETRY: Duration = Duration::from_millis(100);

impl Driver {
    /// Pauses before an acquire that has failed is tried again.
    pub(crate) async fn pause_before_retry(&self) {
        self.pause(clock::now() + RETRY, self.returned()).await;
    }

    /// To be called before a request is sent that is tried again after an error.
    pub(super) fn returned(&self) -> Returned {
        self.returns.so_far()
    }

    /// Pauses until a moment, or until the store has returned since a request was sent.
    pub(super) async fn pause(&self, until: Moment, since: Returned) {
        let has_returned = self.returns.watch.until(|| (self.returned() != since).then_some(()));
        self.before(until, has_returned).await;
    }

    /// The store can be reached again: all that failed meanwhile is tried now.
    pub(super) fn retry_all(self: &std::sync::Arc<Self>) {
        self.returns.announce();
        self.groups.failing().into_iter().for_each(|group| self.ask(group));
    }
}
