//! Timers for callers, on any executor.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use super::Driver;
use super::agenda::TimerKey;
use crate::clock;
use crate::core::moment::Moment;

impl Driver {
    /// Resolves at a moment, on any executor.
    pub(crate) fn alarm(&self, at: Moment) -> Alarm<'_> {
        Alarm { driver: self, at, key: None }
    }

    /// The output of a future, or none if `end` comes first.
    pub(super) async fn before<F: Future>(&self, end: Moment, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut alarm = pin!(self.alarm(end));
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if end == Moment::NEVER => Poll::Pending,
            Poll::Pending => alarm.as_mut().poll(context).map(|()| None),
        })
        .await
    }
}

/// A timer for a caller, on any executor.
pub(crate) struct Alarm<'a> {
    driver: &'a Driver,
    at: Moment,
    key: Option<TimerKey>,
}

impl Future for Alarm<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if clock::now() >= self.at || self.driver.has_ended() {
            return Poll::Ready(());
        }
        // Cloned before and dropped after the agenda is locked: wakers are foreign code.
        let waker = context.waker().clone();
        let (key, old) = self.driver.agenda.wake_at(self.key, self.at, waker);
        self.key = Some(key);
        drop(old);
        // The driver may have ended before it could see this timer.
        if self.driver.has_ended() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key
            && !self.driver.is_inherited()
        {
            drop(self.driver.agenda.remove(key));
        }
    }
}
