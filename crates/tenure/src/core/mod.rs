//! What a lock *is*: pure state machines that are told the time and do no I/O.
//!
//! - [`table`]: names, holders, queue, hand-over. The whole truth of a store.
//! - [`lock`]: one lock of the table; [`holders`] and [`queue`] are its two halves.
//! - [`lease`]: how long a holder may believe it holds (I2).
//! - [`fence`]: the number that only grows (I4).
//! - `clock_step`: notices when the store's clock was set.
//! - [`backoff`]: how long to wait before asking again.
//! - [`name`], [`shape`], [`moment`]: values checked when built, so that later code never checks again.

pub(crate) mod backoff;
#[cfg(feature = "redis")]
pub(crate) mod clock_step;
pub(crate) mod fence;
pub(crate) mod holders;
pub(crate) mod lease;
pub(crate) mod lock;
pub(crate) mod moment;
pub(crate) mod name;
pub(crate) mod queue;
pub(crate) mod shape;
pub(crate) mod table;
