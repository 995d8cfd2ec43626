//! What happens to the locks of a client, as a stream.
//!
//! The stream has a bound: a reader that falls behind misses the oldest events, and neither delays a lock nor uses up the
//! memory. Without a reader no event is made.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::core::fence::Fence;
use crate::core::name::LockName;
use crate::error::WhyLost;
use crate::foreign;
use crate::owner::Owner;

/// How many events a reader may be behind.
const CAPACITY: usize = 1024;

/// Something that happened to a lock of this client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The lock.
    pub name: LockName,
    /// The owner under which this client holds, or held, it.
    pub owner: Owner,
    /// The fence of that hold.
    pub fence: Fence,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// It was acquired: the guard is about to be returned.
    #[non_exhaustive]
    Acquired {
        /// How long the acquire took.
        waited: Duration,
    },
    /// It came through the queue, and was never free in between: its last holder released it, or lost it. [`EventKind::Acquired`]
    /// follows.
    #[non_exhaustive]
    HandedOver {
        /// Whether that holder was a task of this process.
        is_local: bool,
    },
    /// Its lease was extended, but late: with less than a third of the lease left.
    #[non_exhaustive]
    RenewedLate {
        /// How much of the lease was left.
        left: Duration,
    },
    /// It was lost.
    #[non_exhaustive]
    Lost {
        /// Why.
        why: WhyLost,
    },
    /// It was taken away by force. This is a loss, too; there is no [`EventKind::Lost`] for it.
    Forced,
    /// It was released by its guard.
    #[non_exhaustive]
    Released {
        /// For how long it was held.
        held: Duration,
    },
}

impl fmt::Display for Event {
    /// Prints a sentence for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, fence, .. } = self;
        match self.kind {
            EventKind::Acquired { waited } => {
                write!(f, "acquired `{name}` after {waited:?}, with fence {fence}")
            }
            EventKind::HandedOver { is_local: true } => {
                write!(f, "`{name}` was handed over within this process, with fence {fence}")
            }
            EventKind::HandedOver { .. } => {
                write!(f, "`{name}` was handed over by its last holder, with fence {fence}")
            }
            EventKind::RenewedLate { left } => {
                write!(f, "`{name}` was renewed late: {left:?} of its lease were left")
            }
            EventKind::Lost { why } => write!(f, "lost `{name}`, with fence {fence}: {why}"),
            EventKind::Forced => {
                write!(f, "lost `{name}`, with fence {fence}: it was taken away by force")
            }
            EventKind::Released { held } => write!(f, "released `{name}` after {held:?}"),
        }
    }
}

/// The events of a client from now on. Made by [`Tenure::events`](crate::Tenure::events).
///
/// # Examples
///
/// ```
/// # tenure::blocking::block_on(async {
/// use tenure::{EventKind, Tenure};
///
/// let tenure = Tenure::connect("memory:").await?;
/// let mut events = tenure.events();
/// drop(tenure.lock("orders/42").acquire().await?);
///
/// let acquired = events.next().await.unwrap();
/// assert!(matches!(acquired.kind, EventKind::Acquired { .. }));
/// let released = events.next().await.unwrap();
/// assert!(matches!(released.kind, EventKind::Released { .. }));
/// # Ok::<(), tenure::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Events {
    receiver: broadcast::Receiver<Event>,
    missed: u64,
}

impl Events {
    /// Waits for the next event. None when the client and all its guards are dropped.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            // The next waker must be called even if this one panics.
            match foreign::guarded(self.receiver.recv()).await {
                Ok(event) => return Some(event),
                Err(RecvError::Lagged(count)) => self.missed += count,
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// Returns how many events were missed so far, because they were not read in time.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

/// Where a client's events go.
#[derive(Debug, Default)]
pub(crate) struct EventSink {
    // Made by the first reader: it has a slot for each event that a reader may be behind.
    sender: OnceLock<broadcast::Sender<Event>>,
}

impl EventSink {
    /// The events from now on.
    pub(crate) fn subscribe(&self) -> Events {
        let sender = self.sender.get_or_init(|| broadcast::channel(CAPACITY).0);
        Events { receiver: sender.subscribe(), missed: 0 }
    }

    /// Sends an event, if there is a reader. No mutex may be held: this wakes foreign wakers.
    pub(crate) fn send(&self, event: impl FnOnce() -> Event) {
        let sender = self.sender.get().filter(|sender| sender.receiver_count() > 0);
        if let Some(sender) = sender {
            foreign::call(|| sender.send(event()));
        }
    }
}
