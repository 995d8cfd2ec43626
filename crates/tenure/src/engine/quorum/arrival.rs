//! Answers of nodes, handled where they arrive.
//!
//! An operation goes to all nodes, and is decided by the first few answers. So it is not the caller that waits for each
//! of them: the thread that delivers an answer, mostly the I/O thread, polls it and counts the vote, and the caller is
//! woken once, by the verdict. No task and no thread is needed for that, and it does not depend on the caller's future
//! (I8).

use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use tokio::task::coop::{Unconstrained, unconstrained};

use crate::engine::Answer;
use crate::error::StoreError;
use crate::sync::lock;

type OnArrival<T> = Box<dyn FnOnce(Result<T, StoreError>) + Send>;

/// Calls `on_arrival` with the answer: at once if it is ready, otherwise on the thread that delivers it.
pub(super) fn on_arrival<T: Send + Unpin + 'static>(
    answer: Answer<T>,
    on_arrival: impl FnOnce(Result<T, StoreError>) + Send + 'static,
) {
    match answer.into_now() {
        Ok(result) => on_arrival(result),
        Err(later) => {
            let awaited =
                Awaited { answer: unconstrained(later), on_arrival: Box::new(on_arrival) };
            let arrival =
                Arrival { state: AtomicU8::new(IDLE), awaited: Mutex::new(Some(awaited)) };
            Arc::new(arrival).poll();
        }
    }
}

const IDLE: u8 = 0;
const POLLING: u8 = 1;
/// It was woken while it was polled, and is polled once more.
const AGAIN: u8 = 2;

/// An answer that has not arrived yet. It is kept alive by the waker that its answer has.
struct Arrival<T> {
    state: AtomicU8,
    awaited: Mutex<Option<Awaited<T>>>,
}

struct Awaited<T> {
    // The budget of the task that delivers it does not count here: with none left, it would be polled again for ever.
    answer: Unconstrained<Answer<T>>,
    on_arrival: OnArrival<T>,
}

impl<T: Send + Unpin + 'static> Arrival<T> {
    /// Polls the answer, unless another thread does; that one then polls again.
    fn poll(self: Arc<Self>) {
        if self.state.swap(AGAIN, Ordering::AcqRel) != IDLE {
            return;
        }
        loop {
            self.state.store(POLLING, Ordering::Release);
            if self.poll_once() {
                // Woken from now on, there is nothing to poll.
                return;
            }
            let idle =
                self.state.compare_exchange(POLLING, IDLE, Ordering::AcqRel, Ordering::Acquire);
            if idle.is_ok() {
                return;
            }
        }
    }

    /// True if it has arrived.
    fn poll_once(self: &Arc<Self>) -> bool {
        let waker = Waker::from(self.clone());
        let mut awaited = lock(&self.awaited);
        let Some(it) = awaited.as_mut() else { return true };
        match Pin::new(&mut it.answer).poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => false,
            Poll::Ready(result) => {
                let done = awaited.take();
                drop(awaited);
                if let Some(Awaited { on_arrival, .. }) = done {
                    on_arrival(result);
                }
                true
            }
        }
    }
}

impl<T: Send + Unpin + 'static> Wake for Arrival<T> {
    fn wake(self: Arc<Self>) {
        self.poll();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::oneshot;

    use super::*;

    fn later(receiver: oneshot::Receiver<u32>) -> Answer<u32> {
        Answer::later(async move { receiver.await.map_err(|_| StoreError::unknown("closed")) })
    }

    #[test]
    fn an_answer_is_handled_by_the_thread_that_delivers_it() {
        let (sender, receiver) = oneshot::channel();
        let (arrived, thread) = std::sync::mpsc::channel();
        on_arrival(later(receiver), move |result| {
            arrived.send((result.unwrap(), std::thread::current().id())).unwrap();
        });
        let delivering = std::thread::spawn(move || {
            sender.send(7).unwrap();
            std::thread::current().id()
        });
        let id = delivering.join().unwrap();
        assert_eq!(thread.recv().unwrap(), (7, id));
    }

    #[test]
    fn nothing_is_kept_of_an_answer_that_arrived() {
        let counted = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 {
            let (sender, receiver) = oneshot::channel();
            let count = counted.clone();
            on_arrival(later(receiver), move |_| {
                count.fetch_add(1, Ordering::SeqCst);
            });
            drop(sender);
        }
        on_arrival(Answer::now(Ok(1)), |_| ());
        assert_eq!(counted.load(Ordering::SeqCst), 10);
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    /// Within a task of tokio, an exhausted budget must not make it spin.
    #[tokio::test]
    async fn an_answer_needs_no_budget() {
        let (mut senders, arrived) = (Vec::new(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..1_000 {
            let (sender, receiver) = oneshot::channel();
            let count = arrived.clone();
            on_arrival(later(receiver), move |_| {
                count.fetch_add(1, Ordering::SeqCst);
            });
            senders.push(sender);
        }
        senders.into_iter().for_each(|sender| sender.send(1).unwrap());
        assert_eq!(arrived.load(Ordering::SeqCst), 1_000);
    }
}
