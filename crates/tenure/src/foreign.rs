//! Calls of code that is not ours: the wakers of other executors.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

/// Calls foreign code, and catches its panic: the panic hook has reported it, and the state it interrupted
/// is the foreign code's own. None if it panicked.
pub(crate) fn call<T>(foreign: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(foreign)) {
        Ok(value) => Some(value),
        Err(payload) => {
            // Dropping it would call foreign code again.
            std::mem::forget(payload);
            None
        }
    }
}

/// Wakes all of them, even if one panics.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        call(|| waker.wake());
    }
}

/// A future whose waker is called by code that calls other wakers, too: a panic of this one keeps none of them from being
/// woken.
pub(crate) async fn guarded<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|context| {
        let waker = Waker::from(Arc::new(Guarded(context.waker().clone())));
        future.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await
}

struct Guarded(Waker);

impl Wake for Guarded {
    fn wake(self: Arc<Self>) {
        call(|| self.0.wake_by_ref());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    struct Counting(AtomicUsize);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            assert!(self.0.fetch_add(1, Ordering::SeqCst) > 0, "the first one panics");
        }
    }

    #[test]
    fn one_waker_that_panics_keeps_no_other_from_being_woken() {
        let counting = Arc::new(Counting(AtomicUsize::new(0)));
        wake_all((0..3).map(|_| Waker::from(counting.clone())));
        assert_eq!(counting.0.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn a_guarded_waker_may_panic() {
        let counting = Arc::new(Counting(AtomicUsize::new(0)));
        let seen = std::sync::Mutex::new(None);
        let mut waiting = pin!(guarded(poll_fn(|context| {
            *seen.lock().unwrap() = Some(context.waker().clone());
            std::task::Poll::<()>::Pending
        })));
        let waker = Waker::from(counting.clone());
        let polled = waiting.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        seen.lock().unwrap().take().unwrap().wake();
        assert_eq!(
            counting.0.load(Ordering::SeqCst),
            1,
            "it was called, and its panic ended there"
        );
    }
}
