//! Checks of a [`Fence`] in the database.
//!
//! A lock alone cannot stop a holder that was paused past its lease and then continues: it does not know
//! yet that the lock is lost. The database can. Store the fence beside the data, and refuse a write whose
//! fence is smaller than the stored one. The crate `tenure-fenced` does it for PostgreSQL, SQLite and Redis, and for HTTP
//! services.
//!
//! # SQL
//!
//! Give the table a column `fence BIGINT NOT NULL DEFAULT 0`, and add [`SQL_SET`] and
//! [`SQL_CHECK`] to the update. If no row changed, a newer holder has overtaken this one.
//!
//! ```
//! use tenure::fenced::{SQL_CHECK, SQL_SET};
//!
//! let update = format!(
//!     "UPDATE stock SET left = left - 1, {SQL_SET} WHERE item = :item AND left > 0 AND {SQL_CHECK}"
//! );
//! # assert!(update.contains("fence <= :fence"));
//! ```
//!
//! # Redis
//!
//! [`REDIS_SET`] is a script that sets a value if the fence is not overtaken.
//!
//! # In the process
//!
//! [`Gate`] does the same for data in memory.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::core::fence::Fence;

/// For the `SET` part of an update: stores the writer's fence.
pub const SQL_SET: &str = "fence = :fence";

/// For the `WHERE` part of an update: excludes a writer that was overtaken.
pub const SQL_CHECK: &str = "fence <= :fence";

/// A Redis script that sets a value if, and only if, the writer is not overtaken.
///
/// `KEYS[1]` is the value, `KEYS[2]` stores the fence (in a cluster both need one hash tag);
/// `ARGV[1]` is the fence, `ARGV[2]` the new value. It returns 1 when the value was set, 0 when
/// the writer was overtaken.
pub const REDIS_SET: &str = include_str!("fenced/set.lua");

/// A Redis script that registers a fence before the data is read.
///
/// A holder that reads, computes and writes needs it: without it, an earlier holder may still write between the
/// read and the write, and its write is overwritten unseen. `KEYS[1]` stores the fence, `ARGV[1]` is the fence. It
/// returns 1 when the fence was registered, 0 when the reader was overtaken.
pub const REDIS_REGISTER: &str = include_str!("fenced/register.lua");

/// Admits holders that were not overtaken.
///
/// # Examples
///
/// ```
/// use tenure::{Fence, fenced::Gate};
///
/// let gate = Gate::new();
/// assert!(gate.admits(Fence::from_value(7)));
/// assert!(!gate.admits(Fence::from_value(6)));
/// ```
#[derive(Debug, Default)]
pub struct Gate {
    highest: AtomicU64,
}

impl Gate {
    /// Creates a gate that has admitted no holder yet.
    pub const fn new() -> Self {
        Self { highest: AtomicU64::new(0) }
    }

    /// Returns whether a holder with this fence is admitted. After that, no lower fence is. [`Fence::NONE`] never is.
    pub fn admits(&self, fence: Fence) -> bool {
        fence != Fence::NONE
            && self.highest.fetch_max(fence.value(), Ordering::AcqRel) <= fence.value()
    }
}
