//! Letting go of a lock, in every path: told to, dropped, panicked, cancelled (I8).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::held::Held;
use super::{AFTER_ERROR, Driver};
use crate::clock;
use crate::core::moment::Moment;
use crate::engine::{Answer, Engine, ReleaseOutcome, ReleaseRequest};
use crate::error::{Error, StoreError};
use crate::guard::Released;
use crate::telemetry;

impl Driver {
    /// Releases, and tells how it went.
    pub(crate) async fn release(self: &Arc<Self>, held: &Arc<Held>) -> Result<Released, Error> {
        self.check_process()?;
        let Some(pending) = self.begin_release(held) else {
            return Ok(Released::Now);
        };
        let was_lost = pending.was_lost;
        // Later than its deadline, a hold that has ended would look as if it had been lost before.
        let until = (clock::now() + self.patience).min(held.deadline());
        let result = pending.endure(until).await;
        match result {
            _ if was_lost => Ok(Released::AlreadyLost),
            Ok(ReleaseOutcome::Released { .. }) => Ok(Released::Now),
            Ok(ReleaseOutcome::NotHeld) => Ok(Released::AlreadyLost),
            Err(trouble) => Err(Error::from_store(&held.name, "release", trouble)),
        }
    }

    /// Gives back all permits of a hold but so many, now or in the background.
    pub(crate) async fn give_back(self: &Arc<Self>, held: &Arc<Held>, keep: u32) {
        let request = ReleaseRequest { keep, ..ReleaseRequest::new(held.name.clone(), held.entry) };
        let answer = self.engine.release(request.clone());
        let pending = PendingRelease {
            driver: self.clone(),
            request,
            was_lost: false,
            until: over(held),
            answer: Some(answer),
        };
        // Failed, it goes on by itself.
        let _ = pending.await;
    }

    /// Releases in the background.
    pub(crate) fn release_in_background(self: &Arc<Self>, held: &Arc<Held>) {
        // In a forked child it is a copy of what the parent holds.
        if self.is_inherited() {
            return;
        }
        drop(self.begin_release(held));
    }

    /// Ends the hold here, then passes the lock on or begins to release it in the store.
    fn begin_release(self: &Arc<Self>, held: &Arc<Held>) -> Option<PendingRelease> {
        let now = clock::now();
        if held.lost(now).is_none() {
            telemetry::held_for(now.since(held.since()));
            if self.hand_over_locally(held, now) {
                return None;
            }
        }
        let was_lost = held.lost(now).is_some() | !self.finish(held);
        let linger = if was_lost { Duration::ZERO } else { held.linger(now) };
        let request = ReleaseRequest {
            linger,
            is_contended: held.was_handed_over(),
            ..ReleaseRequest::new(held.name.clone(), held.entry)
        };
        // A question of our own line that is being put now might take the lock again.
        let is_asking = self.groups.start_releasing(held.entry);
        let answer = self.engine.release(request.clone());
        if is_asking && self.groups.stop_releasing(held.entry) {
            self.abandon(held.name.clone(), held.entry);
        }
        let (driver, until) = (self.clone(), over(held));
        Some(PendingRelease { driver, request, was_lost, until, answer: Some(answer) })
    }

    /// Goes on releasing until it is done, or the lease has ended anyway.
    fn keep_releasing(
        self: &Arc<Self>,
        request: ReleaseRequest,
        first: Answer<ReleaseOutcome>,
        until: Moment,
    ) {
        let driver = self.clone();
        self.spawn_later(async move {
            let again = || driver.engine.release(request.clone());
            if let Err(trouble) = driver.persist(first, again, until).await {
                telemetry::release_failed(&request.name, &trouble);
            }
        });
    }
}

/// A release in flight. Dropped, or failed, it goes on in the background.
struct PendingRelease {
    driver: Arc<Driver>,
    request: ReleaseRequest,
    was_lost: bool,
    /// By then the lease has ended in the store.
    until: Moment,
    answer: Option<Answer<ReleaseOutcome>>,
}

impl PendingRelease {
    /// Tries again while the store refuses, until this moment. Once unanswered it is not tried again
    /// here: what a second attempt finds would say nothing of the first (I6).
    async fn endure(mut self, until: Moment) -> Result<ReleaseOutcome, StoreError> {
        let mut delays = AFTER_ERROR.delays(clock::now().as_micros());
        loop {
            let result = (&mut self).await;
            let passes = |trouble: &StoreError| !trouble.is_unknown() && !trouble.is_lasting();
            let is_refused = result.as_ref().err().is_some_and(passes);
            let next = clock::now() + delays.next();
            if !is_refused || next >= until {
                return result;
            }
            self.driver.alarm(next).await;
            self.answer = Some(self.driver.engine.release(self.request.clone()));
        }
    }
}

impl Future for PendingRelease {
    type Output = Result<ReleaseOutcome, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = self.answer.as_mut().expect("a pending is not polled after its end");
        let result = std::task::ready!(Pin::new(answer).poll(context));
        self.answer = None;
        if let Err(trouble) = &result {
            self.answer = Some(Answer::now(Err(trouble.clone())));
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
            Ok(Err(trouble)) => Answer::now(Err(trouble)),
            Err(later) => later,
        };
        self.driver.keep_releasing(self.request.clone(), unfinished, self.until);
    }
}

/// When a hold that is let go of now has certainly ended by itself: a renewal that is still on its way
/// may extend it once more.
fn over(held: &Held) -> Moment {
    clock::now() + held.lease.duration() * 2
}
