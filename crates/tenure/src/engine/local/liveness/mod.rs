//! Which clients are alive. The kernel releases the lock on a client's file when its process ends, however it ends,
//! so that a dead client is detected at once: its holds end, and the waiters behind it retry (I7).
//!
//! - [`presence`]: a client of this process: its lock file and its socket. [`client_files`]: the files of all
//!   clients.
//! - [`lock_files`]: whether a client is alive. [`watch`]: blocks until a client ends.
//! - [`rules`]: the consequences for a lock's holders and waiters.

pub(crate) mod client_files;
pub(crate) mod lock_files;
pub(crate) mod presence;
mod rules;
pub(crate) mod watch;

#[cfg(test)]
pub(crate) use self::rules::{DETACHED, SPINNING};
pub(crate) use self::rules::{
    MAX_CLIENT, Waiters, client_of, clients_to_watch, detach, detach_unless_client, expire_dead,
    extend_inherited, is_in_use, may_spin, set_spinning, settle_grants,
};
