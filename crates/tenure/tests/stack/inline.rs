//! An executor that polls a task where it is woken. That is allowed, and reveals nested calls.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Task {
    work: Mutex<Option<Work>>,
    is_woken: AtomicBool,
}

/// Starts a task, and polls it once.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    let work = Mutex::new(Some(Box::pin(work) as Work));
    Arc::new(Task { work, is_woken: AtomicBool::new(false) }).wake();
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        // If the work is taken, it is being polled, further down the stack or on another thread, which polls again.
        while self.is_woken.load(Ordering::SeqCst) {
            let Some(mut work) = self.work.lock().unwrap().take() else { return };
            self.is_woken.store(false, Ordering::SeqCst);
            let waker = Waker::from(self.clone());
            match work.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(()) => return,
                Poll::Pending => *self.work.lock().unwrap() = Some(work),
            }
        }
    }
}
