//! Log events of threads that renew leases and read replies, on a thread of their own.
//!
//! A subscriber may block: its output is a pipe that no process reads, or a terminal that was stopped. On a thread of the
//! driver that would stop all renewals, and the notices of their loss (I9). So such an event is put into a queue. The queue
//! has a bound: what does not fit is dropped, and counted.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::foreign;

/// How many events wait at most. Each has a name and some numbers.
const CAPACITY: usize = 1024;

type Event = Box<dyn FnOnce() + Send>;

/// None if the thread could not be started.
static QUEUE: OnceLock<Option<SyncSender<Event>>> = OnceLock::new();

/// How many events did not fit since the last one that did.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Logs an event soon, and never blocks.
pub(super) fn log(event: impl FnOnce() + Send + 'static) {
    let Some(queue) = QUEUE.get_or_init(start) else { return };
    if queue.try_send(Box::new(event)).is_err() {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

fn start() -> Option<SyncSender<Event>> {
    let (sender, receiver) = sync_channel(CAPACITY);
    let thread = std::thread::Builder::new().name("tenure-log".to_owned());
    // It ends with the process.
    thread.spawn(move || write_all(&receiver)).ok().map(|_| sender)
}

fn write_all(events: &Receiver<Event>) {
    for event in events {
        foreign::call(event);
        let dropped = DROPPED.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            foreign::call(|| {
                tracing::warn!(dropped, "events were not logged, because the log was blocked");
            });
        }
    }
}
