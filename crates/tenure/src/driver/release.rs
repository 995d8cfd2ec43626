//! Releasing a lock, in every path: `release`, drop, panic, cancellation (I8).

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::held::Held;
use super::{AFTER_ERROR, Driver};
use crate::clock;
use crate::core::moment::Moment;
use crate::engine::{Answer, Engine, ReleaseOutcome, ReleaseRequest};
use crate::error::{Error, StoreError};
use crate::events::EventKind;
use crate::guard::Released;
use crate::telemetry::{self, spans};

impl Driver {
    /// Releases, and returns the outcome.
    pub(crate) async fn release(self: &Arc<Self>, held: &Arc<Held>) -> Result<Released, Error> {
        self.check_process()?;
        let span = spans::release(&held.name, &self.engine);
        let Some(pending) = self.begin_release(held) else {
            return Ok(Released::Now);
        };
        let was_lost = pending.was_lost;
        // After its deadline, a hold that this release has ended would be reported as lost.
        let until = (clock::now() + self.settings.patience).min(held.deadline());
        let result = span.run(pin!(pending.retry_refused(until))).await;
        match result {
            _ if was_lost => Ok(Released::AlreadyLost),
            Ok(ReleaseOutcome::Released { .. }) => Ok(Released::Now),
            Ok(ReleaseOutcome::NotHeld) => Ok(Released::AlreadyLost),
            Err(error) => Err(Error::from_store(&held.name, "release", error)),
        }
    }

    /// Gives back all permits of a hold but `keep`, now or in the background.
    pub(crate) async fn give_back(self: &Arc<Self>, held: &Arc<Held>, keep: u32) {
        if !self.reentries.keep(held, keep) {
            return;
        }
        let request = ReleaseRequest { keep, ..ReleaseRequest::new(held.name.clone(), held.entry) };
        let answer = self.engine.release(request.clone());
        let pending = PendingRelease {
            driver: self.clone(),
            request,
            was_lost: false,
            until: over(held),
            answer: Some(answer),
        };
        // If it fails, it is retried in the background.
        let _ = pending.await;
    }

    /// Releases in the background.
    pub(crate) fn release_in_background(self: &Arc<Self>, held: &Arc<Held>) {
        // In a forked child, the hold is the parent's.
        if self.is_inherited() {
            return;
        }
        drop(self.begin_release(held));
    }

    /// Ends the hold here, then passes the lock on or begins to release it in the store.
    fn begin_release(self: &Arc<Self>, held: &Arc<Held>) -> Option<PendingRelease> {
        let now = clock::now();
        if held.lost(now).is_none() {
            let time = now.since(held.since());
            telemetry::held_for(held.group, time);
            held.report(held.turn(), EventKind::Released { held: time });
            if self.hand_over_locally(held, now) {
                return None;
            }
        }
        let was_lost = held.lost(now).is_some() | !self.finish(held);
        // A lock that replicas have not confirmed was never given out, so its least time has not begun.
        let lingers = !was_lost && held.is_confirmed();
        let linger = if lingers { held.linger(now) } else { Duration::ZERO };
        let request = ReleaseRequest {
            linger,
            is_contended: held.was_handed_over(),
            ..ReleaseRequest::new(held.name.clone(), held.entry)
        };
        // A question of our own wait group that is being sent now might take the lock again.
        let is_asking = self.groups.start_releasing(held.entry);
        let answer = self.engine.release(request.clone());
        if is_asking && self.groups.stop_releasing(held.entry) {
            self.abandon(held.name.clone(), held.entry);
        }
        let (driver, until) = (self.clone(), over(held));
        Some(PendingRelease { driver, request, was_lost, until, answer: Some(answer) })
    }

    /// Retries the release until it is done, or the lease has ended.
    fn keep_releasing(
        self: &Arc<Self>,
        request: ReleaseRequest,
        first: Answer<ReleaseOutcome>,
        until: Moment,
    ) {
        let driver = self.clone();
        self.spawn_later(async move {
            let again = || driver.engine.release(request.clone());
            if let Err(error) = driver.persist(first, again, until).await {
                telemetry::release_failed(&request.name, &error);
            }
        });
    }
}

/// A release in flight. If it is dropped or fails, it continues in the background.
struct PendingRelease {
    driver: Arc<Driver>,
    request: ReleaseRequest,
    was_lost: bool,
    /// By then the lease has ended in the store.
    until: Moment,
    answer: Option<Answer<ReleaseOutcome>>,
}

impl PendingRelease {
    /// Retries while the store refuses, until this moment. An attempt without an answer is not retried
    /// here: the outcome of a second attempt would say nothing of the first (I6).
    async fn retry_refused(mut self, until: Moment) -> Result<ReleaseOutcome, StoreError> {
        let mut delays = AFTER_ERROR.delays(clock::now().as_micros());
        let mut returned = self.driver.returned();
        loop {
            let result = (&mut self).await;
            let is_transient = |error: &StoreError| !error.is_unknown() && !error.is_lasting();
            let is_refused = result.as_ref().err().is_some_and(is_transient);
            let next = clock::now() + delays.next();
            if !is_refused || next >= until {
                return result;
            }
            self.driver.pause(next, returned).await;
            returned = self.driver.returned();
            self.answer = Some(self.driver.engine.release(self.request.clone()));
        }
    }
}

impl Future for PendingRelease {
    type Output = Result<ReleaseOutcome, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer =
            self.answer.as_mut().expect("a pending release is not polled after it is ready");
        let result = std::task::ready!(Pin::new(answer).poll(context));
        self.answer = None;
        if let Err(error) = &result {
            self.answer = Some(Answer::now(Err(error.clone())));
        }
        Poll::Ready(result)
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        let Some(answer) = self.answer.take() else {
            return;
        };
        if self.driver.is_inherited() {
            return;
        }
        let unfinished = match answer.into_now() {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => Answer::now(Err(error)),
            Err(later) => later,
        };
        self.driver.keep_releasing(self.request.clone(), unfinished, self.until);
    }
}

/// When the lease of a hold that is released now has certainly ended: a renewal in flight may extend it
/// once more.
fn over(held: &Held) -> Moment {
    clock::now() + held.lease.duration() * 2
}
