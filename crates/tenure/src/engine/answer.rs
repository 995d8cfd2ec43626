//! The answer to an operation: immediate, or later.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::StoreError;

type Later<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// The future that an engine's operations return. It is often ready from the start, and then costs no
/// allocation and no thread switch.
///
/// It depends on no runtime: it can be polled, dropped or moved to another thread at any time.
pub struct Answer<T>(State<T>);

enum State<T> {
    Now(Option<Result<T, StoreError>>),
    Later(Later<T>),
}

impl<T> Answer<T> {
    /// Creates the answer of an operation that is done.
    pub fn now(result: Result<T, StoreError>) -> Self {
        Self(State::Now(Some(result)))
    }

    /// Creates the answer of an operation in flight.
    pub fn later(future: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        Self(State::Later(Box::pin(future)))
    }

    /// The result, if it is ready.
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
