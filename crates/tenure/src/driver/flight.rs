//! An acquire on its way to the store and back.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Driver;
use crate::core::name::LockName;
use crate::engine::{Acquired, Answer};
use crate::error::Trouble;
use crate::owner::Entry;

/// An acquire in flight. Dropped before the answer, it is finished in the background and undone.
pub(super) struct Flight<'a> {
    driver: &'a Arc<Driver>,
    name: &'a LockName,
    entry: Entry,
    answer: Option<Answer<Acquired>>,
}

impl<'a> Flight<'a> {
    pub(super) fn new(
        driver: &'a Arc<Driver>,
        name: &'a LockName,
        entry: Entry,
        answer: Answer<Acquired>,
    ) -> Self {
        Self { driver, name, entry, answer: Some(answer) }
    }

    pub(super) fn disarm(mut self) {
        self.answer = None;
    }
}

/// Stands for an attempt that was not answered.
pub(super) fn no_answer() -> Answer<Acquired> {
    Answer::now(Err(Trouble::unknown("no answer")))
}

impl Future for Flight<'_> {
    type Output = Result<Acquired, Trouble>;

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
            let (driver, name, entry) = (self.driver.clone(), self.name.clone(), self.entry);
            self.driver.spawn(async move {
                // First the answer, then the undoing: overtaken by its own cancel, the acquire
                // would be granted to nobody.
                let _ = answer.await;
                driver.abandon(name, entry);
            });
        }
    }
}
