//! The lock as pure state machines: the time is a parameter, and there is no I/O.
//!
//! - [`table`]: names, holders, queue, hand-over: the state of a store.
//! - [`lock`]: one lock of the table; [`holders`] and [`queue`] are its two parts.
//! - [`lease`]: until when a holder may assume that it holds the lock (I2).
//! - [`fence`]: the number that only increases (I4); [`proposal`]: which fence a node of a quorum accepts.
//! - `quorum`: what the answers of independent nodes amount to.
//! - `clock_step`: detects steps of the store's clock.
//! - [`backoff`]: how long to wait before a retry.
//! - [`name`], [`shape`], [`moment`]: values checked when built, so that later code need not check again.

pub(crate) mod backoff;
#[cfg(feature = "redis")]
pub(crate) mod clock_step;
pub(crate) mod fence;
pub(crate) mod holders;
pub(crate) mod lease;
pub(crate) mod lock;
pub(crate) mod moment;
pub(crate) mod name;
pub(crate) mod proposal;
pub(crate) mod queue;
#[cfg(feature = "redis")]
pub(crate) mod quorum;
pub(crate) mod replicas;
pub(crate) mod shape;
pub(crate) mod table;
