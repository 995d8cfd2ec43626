//! Undoing acquires that are not wanted any more (I6, I8), and retrying requests without an answer.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use super::{AFTER_ERROR, Driver, Spec};
use crate::clock;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::engine::{Acquired, Answer, CancelRequest, Engine};
use crate::error::StoreError;
use crate::owner::Entry;

impl Driver {
    /// Undoes an acquire, whether it waits or was granted (I6).
    pub(super) fn abandon(self: &Arc<Self>, name: LockName, entry: Entry) {
        let request = CancelRequest { name, entry };
        let first = match self.engine.cancel(request.clone()).into_now() {
            Ok(Ok(())) => return,
            Ok(Err(error)) => Answer::now(Err(error)),
            Err(later) => later,
        };
        let driver = self.clone();
        self.spawn(async move { driver.keep_cancelling(request, first).await });
    }

    /// Undoes an acquire without an answer, if it can be undone.
    pub(super) fn undo(self: &Arc<Self>, spec: &Spec, entry: Entry) {
        if !spec.is_count() {
            self.abandon(spec.name.clone(), entry);
        }
    }

    /// Undoes an acquire in flight. The engine keeps the order of its calls, so the cancel can follow at
    /// once, and later operations of this client come after both.
    pub(super) fn undo_after(
        self: &Arc<Self>,
        answer: Answer<Acquired>,
        spec: &Spec,
        entry: Entry,
    ) {
        if self.is_inherited() {
            return std::mem::forget(answer);
        }
        let Err(later) = answer.into_now() else { return self.undo(spec, entry) };
        if spec.is_count() {
            return;
        }
        let request = CancelRequest { name: spec.name.clone(), entry };
        let mut cancel = self.engine.cancel(request.clone());
        let driver = self.clone();
        self.spawn(async move {
            let _ = later.await;
            // An acquire that the engine had to retry, as after a split call, may have taken effect
            // after the cancel. In that case the cancel was answered first.
            let is_answered =
                poll_fn(|context| Poll::Ready(Pin::new(&mut cancel).poll(context).is_ready()))
                    .await;
            if is_answered {
                cancel = driver.engine.cancel(request.clone());
            }
            driver.keep_cancelling(request, cancel).await;
        });
    }

    async fn keep_cancelling(&self, request: CancelRequest, first: Answer<()>) {
        // By this time the lease or the heartbeat has ended in the store.
        let until = clock::now() + crate::Lease::MAX.duration();
        let again = || self.engine.cancel(request.clone());
        let _ = self.persist(first, again, until).await;
    }

    /// Retries an operation until it is answered or the time is over. Operations are idempotent (I5),
    /// so this is always safe; after one attempt without an answer, the outcome stays unknown (I6).
    pub(super) async fn persist<T: Unpin>(
        &self,
        first: Answer<T>,
        mut again: impl FnMut() -> Answer<T>,
        until: Moment,
    ) -> Result<T, StoreError> {
        let mut delays = AFTER_ERROR.delays(clock::now().as_micros());
        let mut answer = first;
        let mut returned = self.returned();
        let mut earlier: Option<StoreError> = None;
        loop {
            let error = match answer.await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error.after(earlier.as_ref()),
            };
            let next = clock::now() + delays.next();
            if next >= until || error.is_lasting() {
                return Err(error);
            }
            earlier = Some(error);
            self.pause(next, returned).await;
            returned = self.returned();
            answer = again();
        }
    }
}
