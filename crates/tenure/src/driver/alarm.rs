//! Timers for callers, on any executor.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use super::Driver;
use super::agenda::TimerKey;
use crate::clock;
use crate::core::moment::Moment;
use crate::sync::lock;

impl Driver {
    /// Resolves at a moment, on any executor.
    pub(crate) fn alarm(&self, at: Moment) -> Alarm<'_> {
        Alarm { driver: self, at, key: None }
    }

    /// What a future gives before a moment; none when that comes first.
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

/// A timer for callers, on any executor.
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
        // Cloned before, and dropped after the lock: wakers are foreign code.
        let waker = context.waker().clone();
        let mut agenda = lock(&self.driver.agenda);
        let (key, must_tell, old) = agenda.wake_at(self.key, self.at, waker);
        drop(agenda);
        self.key = Some(key);
        drop(old);
        if must_tell {
            self.driver.bell.notify_one();
        }
        // It may have ended before it could see this timer.
        if self.driver.has_ended() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key
            && !self.driver.is_inherited()
        {
            let timer = lock(&self.driver.agenda).remove(key);
            drop(timer);
        }
    }
}
