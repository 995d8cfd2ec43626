//! An acquire in flight.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Driver, Spec};
use crate::core::name::LockName;
use crate::engine::{Acquired, Answer};
use crate::error::{Error, StoreError};
use crate::owner::Entry;

/// An acquire in flight. Dropped before the answer, it is undone.
pub(super) struct Flight<'a> {
    driver: &'a Arc<Driver>,
    spec: &'a Arc<Spec>,
    entry: Entry,
    answer: Option<Answer<Acquired>>,
}

impl<'a> Flight<'a> {
    pub(super) fn new(
        driver: &'a Arc<Driver>,
        spec: &'a Arc<Spec>,
        entry: Entry,
        answer: Answer<Acquired>,
    ) -> Self {
        Self { driver, spec, entry, answer: Some(answer) }
    }

    pub(super) fn disarm(mut self) {
        self.answer = None;
    }
}

/// The answer of an attempt that was not answered.
pub(super) fn no_answer() -> Answer<Acquired> {
    Answer::now(Err(StoreError::unknown("no answer")))
}

/// The error for an answer about a proposed fence: the driver proposes none.
pub(super) fn unproposed(name: &LockName) -> Error {
    let error = StoreError::refused("the engine refused a fence that was not proposed");
    Error::from_store(name, "acquire", error)
}

impl Future for Flight<'_> {
    type Output = Result<Acquired, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = self.answer.as_mut().expect("a flight is not polled after it has landed");
        let result = std::task::ready!(Pin::new(answer).poll(context));
        self.answer = None;
        Poll::Ready(result)
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            self.driver.undo_after(answer, self.spec, self.entry);
        }
    }
}
