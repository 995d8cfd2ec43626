//! Locks as records in an LMDB file that every process maps. It decides what one operation reads and writes, and that
//! it takes effect as a whole or not at all.
//!
//! - [`registry`]: one [`store`] per folder and process. [`map`] opens LMDB's file, the only `unsafe` code here.
//! - [`transaction`]: one operation in one write transaction (I1), on locks that [`loading`] reads. An error says
//!   whether the operation may have taken effect (I6).
//! - [`listing`]: a list of locks, in many short transactions. [`sweep`]: removes locks that are no longer in use.
//! - [`quota`]: refuses what does not fit, so that a release always does.
//! - [`record`]: the format of records, in terms of [`bytes`].

pub(crate) mod bytes;
pub(crate) mod listing;
mod loading;
pub(crate) mod map;
mod quota;
pub(crate) mod record;
pub(crate) mod registry;
pub(crate) mod store;
mod sweep;
pub(crate) mod transaction;
