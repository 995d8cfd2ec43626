//! Arguments that several subcommands share.
//!
//! ```text
//! store         --url: which store, and connecting to it
//! lock_args     -s, -x, --limit, --lease, --note: which lock, and acquiring it
//! wait_args     -n, -w, -E: how long to wait for it
//! replica_args  --wait-replicas: which replicas must have it
//! patience      how long an unreachable store is retried
//! time          times as users write them
//! ```

pub(crate) mod lock_args;
pub(crate) mod patience;
pub(crate) mod replica_args;
pub(crate) mod store;
pub(crate) mod time;
pub(crate) mod wait_args;
