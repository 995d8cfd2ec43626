//! The same locks for code that is not async: a thin mirror that parks the calling thread.
//!
//! Renewing and cleaning up happen on the driver's own thread, also while the caller works.
//!
//! # Examples
//!
//! ```
//! let tenure = tenure::Tenure::memory()?;
//! let lock = tenure.lock("orders/42").reentrant().blocking();
//!
//! let guard = lock.acquire()?;
//! let again = lock.acquire()?; // the same thread, so the same owner
//! assert_eq!(guard.fence(), again.fence());
//! # Ok::<(), tenure::Error>(())
//! ```

mod kinds;

pub use kinds::{Barrier, Election, Latch, RwLock, Semaphore, WriteGuard, acquire_all};

use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::error::Error;
use crate::guard::Released;
use crate::handle::Handle;
use crate::info::LockInfo;
use crate::owner::Owner;
use crate::parking::{self, Waiting};
use crate::wait::Wait;

/// A lock for code that is not async, made by [`crate::Lock::blocking`]. The owner of a re-entrant lock is
/// the calling thread.
#[derive(Clone, Debug)]
pub struct Lock(crate::Lock);

impl Lock {
    pub(crate) fn new(lock: crate::Lock) -> Self {
        Self(lock)
    }

    /// Makes one attempt: returns the guard, or `None` if others hold the lock or wait for it.
    ///
    /// # Errors
    /// As for [`crate::Lock::try_acquire`].
    pub fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        Ok(as_thread(self.0.try_acquire())?.map(Guard))
    }

    /// Waits until the lock is acquired.
    ///
    /// # Errors
    /// As for [`crate::Lock::acquire`].
    pub fn acquire(&self) -> Result<Guard, Error> {
        self.acquire_with(Wait::forever())
    }

    /// Waits for at most `time`.
    ///
    /// # Errors
    /// As for [`crate::Lock::acquire_within`].
    pub fn acquire_within(&self, time: Duration) -> Result<Guard, Error> {
        self.acquire_with(Wait::within(time))
    }

    /// Waits as `wait` says.
    ///
    /// # Errors
    /// As for [`crate::Lock::acquire_with`].
    pub fn acquire_with(&self, wait: Wait) -> Result<Guard, Error> {
        as_thread(self.0.acquire_with(wait)).map(Guard)
    }

    /// Returns the holders and waiters of the lock.
    ///
    /// # Errors
    /// As for [`crate::Lock::inspect`].
    pub fn inspect(&self) -> Result<LockInfo, Error> {
        block_on(self.0.inspect())
    }
}

/// A held lock, for code that is not async. It dereferences to [`crate::Guard`].
#[derive(Debug)]
#[must_use = "the lock is released as soon as the guard is dropped; bind it to a name"]
pub struct Guard(crate::Guard);

impl Guard {
    /// Releases the lock, and returns whether it was held until now.
    ///
    /// # Errors
    /// As for [`crate::Guard::release`].
    pub fn release(self) -> Result<Released, Error> {
        block_on(self.0.release())
    }

    /// Extends the lease now.
    ///
    /// # Errors
    /// As for [`crate::Guard::renew`].
    pub fn renew(&self) -> Result<(), Error> {
        block_on(self.0.renew())
    }

    /// Ensures that nearly the whole lease is left, also right after a hand-over.
    ///
    /// # Errors
    /// As for [`crate::Guard::confirm`].
    pub fn confirm(&self) -> Result<(), Error> {
        block_on(self.0.confirm())
    }

    /// Consumes the guard without releasing the lock.
    ///
    /// # Errors
    /// As for [`crate::Guard::detach`].
    pub fn detach(self) -> Result<Handle, Error> {
        block_on(self.0.detach())
    }

    /// Returns the guard for async code.
    pub fn into_async(self) -> crate::Guard {
        self.0
    }
}

impl Deref for Guard {
    type Target = crate::Guard;

    fn deref(&self) -> &crate::Guard {
        &self.0
    }
}

/// Runs a future to completion on the calling thread. The futures of this crate need no runtime, so this
/// is enough for all of them.
pub fn block_on<F: Future>(future: F) -> F::Output {
    // In a tokio task, primitives of tokio pretend to be pending when the task has used up its budget, until it returns
    // to the scheduler. It does not return from here, so it would wait for ever.
    let mut future = pin!(tokio::task::unconstrained(future));
    let waiting = Arc::new(Waiting::new());
    let waker = Waker::from(waiting.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        waiting.start();
        let (polled, reading) = parking::polling(|| future.as_mut().poll(&mut context));
        match polled {
            Poll::Ready(output) => return output,
            Poll::Pending => reading.wait(&waiting),
        }
    }
}

/// Runs a future with the calling thread as the owner, unless it is inside a scope.
fn as_thread<F: Future>(future: F) -> F::Output {
    match Owner::current() {
        Some(_) => block_on(future),
        None => block_on(Owner::of_thread().scope(future)),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::sync::oneshot;

    use super::*;

    /// A nested `block_on` does not consume the wake-ups of the outer one.
    #[test]
    fn a_wake_up_of_the_outer_future_is_kept_by_the_inner_one() {
        let (outer, mut woken) = oneshot::channel::<()>();
        let mut outer = Some(outer);
        block_on(poll_fn(|context| {
            let polled = std::pin::Pin::new(&mut woken).poll(context);
            if let Some(outer) = outer.take() {
                let (inner, answer) = oneshot::channel::<()>();
                let thread = std::thread::spawn(move || {
                    outer.send(()).unwrap();
                    inner.send(()).unwrap();
                });
                thread.join().unwrap();
                block_on(answer).unwrap();
            }
            polled.map(drop)
        }));
    }
}
