//! Threads that wait in [`blocking`](crate::blocking), and read their connection meanwhile.
//!
//! A thread that has sent a request and would only park can read the answer itself: if another thread reads
//! it and then wakes this one, that costs two more context switches. So a sender leaves its connection here,
//! and the waiting thread reads it, for all callers that wait, until it is woken.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Wake;
use std::thread::Thread;

/// A connection from which a thread can read while it waits.
pub(crate) trait Readable: Send + Sync {
    /// Reads, for all callers that wait for an answer, until the thread is woken; or returns earlier, if another thread
    /// reads, or there is nothing more to read.
    fn read_until_woken(&self, waiting: &Waiting);

    /// The sending thread does not wait for the answer: another thread must read it.
    fn leave_to_others(&self);
}

thread_local! {
    /// Set while this thread polls a future in `block_on`: the connection that it should read.
    static POLLING: RefCell<Option<Slot>> = const { RefCell::new(None) };
}

type Slot = Option<Arc<dyn Readable>>;

/// Whether this thread polls in `block_on`, and so is about to wait.
pub(crate) fn is_polling() -> bool {
    POLLING.try_with(|polling| polling.borrow().is_some()).unwrap_or(false)
}

/// Leaves a connection to this thread, if it is about to wait. False if it is not: another thread must read.
pub(crate) fn leave<C: Readable + 'static>(connection: &Arc<C>) -> bool {
    let left = POLLING.try_with(|polling| {
        let mut polling = polling.borrow_mut();
        Some(polling.as_mut()?.replace(connection.clone()))
    });
    match left {
        Ok(Some(before)) => {
            // A thread reads only one connection.
            before.into_iter().for_each(|it| it.leave_to_others());
            true
        }
        _ => false,
    }
}

/// The answer to this thread's request is awaited elsewhere: another thread reads it.
pub(crate) fn leave_to_others() {
    let left = POLLING.try_with(|polling| polling.borrow_mut().as_mut().and_then(Option::take));
    drop(Polled(left.ok().flatten()));
}

/// Polls, as a thread that is about to wait. Also returns the connection that it should read, if any.
pub(crate) fn polling<T>(poll: impl FnOnce() -> T) -> (T, Polled) {
    /// Restores the outer slot, also after a panic: calls of `block_on` may nest.
    struct Restore(Option<Slot>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let before = self.0.take();
            let left = POLLING.try_with(|polling| polling.replace(before)).ok().flatten().flatten();
            drop(Polled(left));
        }
    }
    let before = POLLING.try_with(|polling| polling.replace(Some(None))).ok().flatten();
    let restore = Restore(before);
    let output = poll();
    let left = POLLING.try_with(|polling| polling.borrow_mut().as_mut().and_then(Option::take));
    drop(restore);
    (output, Polled(left.ok().flatten()))
}

/// The connection that a thread should read. If it is dropped, another thread reads it.
pub(crate) struct Polled(Slot);

impl Polled {
    /// Waits until the thread is woken, and reads meanwhile.
    pub(crate) fn wait(mut self, waiting: &Waiting) {
        if let Some(connection) = self.0.take() {
            connection.read_until_woken(waiting);
        }
        // Without the connection: it may have been replaced, and would stay open while this thread waits.
        waiting.park();
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|it| it.leave_to_others());
    }
}

/// In [`Waiting::state`]: not woken yet, woken, or blocked in `poll`, where only a signal wakes it.
const AWAKE: u8 = 0;
const WOKEN: u8 = 1;
#[cfg(all(feature = "redis", target_os = "linux"))]
const READING: u8 = 2;

/// A thread in `block_on`.
pub(crate) struct Waiting {
    state: AtomicU8,
    thread: Thread,
    #[cfg(all(feature = "redis", target_os = "linux"))]
    signal: std::sync::OnceLock<Arc<signal::Signal>>,
}

impl Waiting {
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU8::new(AWAKE),
            thread: std::thread::current(),
            #[cfg(all(feature = "redis", target_os = "linux"))]
            signal: Default::default(),
        }
    }

    /// To be called before the future is polled: wake-ups count from now on.
    pub(crate) fn start(&self) {
        self.state.store(AWAKE, Ordering::Release);
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.state.load(Ordering::Acquire) == WOKEN
    }

    /// Parks until it is woken.
    pub(crate) fn park(&self) {
        while !self.is_woken() {
            std::thread::park();
        }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match self.state.swap(WOKEN, Ordering::AcqRel) {
            #[cfg(all(feature = "redis", target_os = "linux"))]
            READING => self.signal.get().into_iter().for_each(|signal| signal.send()),
            _ => self.thread.unpark(),
        }
    }
}

#[cfg(all(feature = "redis", unix, not(target_os = "linux")))]
impl Waiting {
    /// Not supported on this system: the I/O thread reads.
    pub(crate) fn until_readable(
        &self,
        _: std::os::fd::BorrowedFd<'_>,
        _: std::time::Duration,
    ) -> Option<bool> {
        None
    }
}

#[cfg(all(feature = "redis", target_os = "linux"))]
mod signal {
    //! Blocking until a socket is readable or another thread sends a signal.

    use std::cell::RefCell;
    use std::os::fd::{BorrowedFd, OwnedFd};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

    use super::{AWAKE, READING, Waiting};
    use crate::fork::Process;

    /// Wakes a thread that blocks until a socket is readable.
    pub(super) struct Signal {
        event: OwnedFd,
        process: Process,
    }

    thread_local! {
        static SIGNAL: RefCell<Option<Arc<Signal>>> = const { RefCell::new(None) };
    }

    impl Signal {
        /// The signal of this thread. None if it cannot be created.
        fn of_thread() -> Option<Arc<Self>> {
            let known = SIGNAL.try_with(|signal| signal.borrow().clone()).ok()?;
            // A forked child shares its parent's eventfd, and would consume its signals.
            if let Some(signal) = known.filter(|signal| !signal.process.is_left()) {
                return Some(signal);
            }
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
            let signal = Arc::new(Self { event, process: Process::this() });
            SIGNAL.try_with(|known| *known.borrow_mut() = Some(signal.clone())).ok()?;
            Some(signal)
        }

        pub(super) fn send(&self) {
            // It fails only if the counter is full, and then a signal is pending.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }

        fn take(&self) {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
    }

    impl Waiting {
        /// Blocks until the socket is readable, which returns true, or until the thread is woken or the time
        /// is over. None if this thread has no signal.
        pub(crate) fn until_readable(
            &self,
            socket: BorrowedFd<'_>,
            at_most: Duration,
        ) -> Option<bool> {
            let signal = match self.signal.get() {
                Some(signal) => signal,
                None => {
                    let signal = Signal::of_thread()?;
                    self.signal.get_or_init(|| signal)
                }
            };
            let swap = |from, to| {
                self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
            };
            if !swap(AWAKE, READING) {
                return Some(false);
            }
            let mut wanted = [
                PollFd::from_borrowed_fd(socket, PollFlags::IN),
                PollFd::new(&signal.event, PollFlags::IN),
            ];
            let at_most = Timespec::try_from(at_most).ok();
            // If it is interrupted, the caller calls again.
            let found = poll(&mut wanted, at_most.as_ref()).unwrap_or(0);
            swap(READING, AWAKE);
            if found == 0 {
                return Some(false);
            }
            if !wanted[1].revents().is_empty() {
                signal.take();
            }
            Some(!wanted[0].revents().is_empty())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Left(AtomicU8);

    impl Readable for Left {
        fn read_until_woken(&self, _: &Waiting) {
            panic!("no thread waits here");
        }

        fn leave_to_others(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// I7: a thread that does not wait for its answer leaves the connection to others, in every path.
    #[test]
    fn what_is_not_waited_for_is_left_to_others() {
        let connection = Arc::new(Left::default());
        let left = || connection.0.swap(0, Ordering::Relaxed);
        assert!(!leave(&connection), "it polls nothing");
        let (is_taken, polled) = polling(|| leave(&connection));
        assert!(is_taken && left() == 0, "it may still wait");
        drop(polled);
        assert_eq!(left(), 1, "the future was ready");
        let (left_inside, polled) = polling(|| {
            assert!(leave(&connection));
            leave_to_others();
            left()
        });
        drop(polled);
        assert_eq!((left_inside, left()), (1, 0), "awaited elsewhere, at once");
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            polling(|| {
                assert!(leave(&connection));
                panic!("on purpose");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(left(), 1, "it panicked");
    }
}
