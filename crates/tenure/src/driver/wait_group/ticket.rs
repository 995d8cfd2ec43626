//! A task's membership in a wait group, as a future that resolves with the guard.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use super::{Member, Outcome};
use crate::driver::Driver;
use crate::engine::Engine;
use crate::parking;

/// A task's membership in a wait group. Dropping it leaves the group.
pub(in crate::driver) struct Ticket {
    driver: Arc<Driver>,
    member: Member,
}

impl Ticket {
    pub(in crate::driver) fn new(driver: &Arc<Driver>, member: Member) -> Self {
        Self { driver: driver.clone(), member }
    }

    /// The guard, when it is this task's turn; none if the group was closed without an outcome.
    pub(in crate::driver) async fn guard(&mut self) -> Option<Outcome> {
        poll_fn(|context| {
            let polled = Pin::new(&mut self.member.receiver).poll(context);
            if polled.is_pending() && parking::is_polling() {
                self.driver.engine.await_wakeup();
            }
            polled.map(Result::ok)
        })
        .await
    }

    /// The outcome that was sent before now. None can be sent after this.
    pub(in crate::driver) fn last_chance(&mut self) -> Option<Outcome> {
        self.member.receiver.close();
        self.member.receiver.try_recv().ok()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.driver.is_inherited() {
            return;
        }
        let (sender, closed) = self.driver.groups.leave(&self.member);
        // Dropping the sender wakes the receiver, which is foreign code.
        drop(sender);
        self.driver.clear(closed);
    }
}
