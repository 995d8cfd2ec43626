//! The answer to an operation: there at once, or later.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::StoreError;

type Later<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// What an engine returns: a future that is often ready from the start, and then costs no
/// allocation and no trip to another thread.
///
/// It belongs to nobody's runtime: it can be polled, dropped or moved to another thread at any
/// moment.
pub struct Answer<T>(State<T>);

enum State<T> {
    Now(Option<Result<T, StoreError>>),
    Later(Later<T>),
}

impl<T> Answer<T> {
    /// The operation is done.
    pub fn now(result: Result<T, StoreError>) -> Self {
        Self(State::Now(Some(result)))
    }

    /// The operation is under way.
    pub fn later(future: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        Self(State::Later(Box::pin(future)))
    }

    /// The result, if it is there already.
    pub(crate) fn into_now(self) -> Result<Result<T, StoreError>, Self> {
        match self.0 {
            State::Now(Some(result)) => Ok(result),
            other => Err(Self(other)),
        }
    }
}

impl<T: Unpin> Future for Answer<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Now(result) => {
                Poll::Ready(result.take().expect("a future is not polled after it is ready"))
            }
            State::Later(future) => future.as_mut().poll(context),
        }
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            State::Now(_) => "Answer(now)",
            State::Later(_) => "Answer(later)",
        })
    }
}
