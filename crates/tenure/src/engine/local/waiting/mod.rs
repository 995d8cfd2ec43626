//! How a thread waits, and how it is woken. Every wait for the store is bounded, so that a loss is reported in time
//! (I9).
//!
//! - [`store_mutex`]: one operation at a time among threads and processes; [`backoff`] is the delay between its
//!   polls.
//! - [`spin`]: whether the first waiter of a lock spins before it parks.
//! - [`receiver`]: wake-ups between processes, encoded by [`message`].

pub(crate) mod backoff;
pub(crate) mod message;
pub(crate) mod receiver;
pub(crate) mod spin;
pub(crate) mod store_mutex;
