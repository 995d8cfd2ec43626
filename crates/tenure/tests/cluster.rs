//! Locks on a cluster: failovers, slots on the move, and nodes that stop, on real servers.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/waiting.rs"]
mod waiting;

mod cluster {
    pub(crate) mod fixture;
    pub(crate) mod load;

    mod confirming;
    mod everyday;
    mod failover;
    mod mistakes;
    mod moving;
    pub(crate) mod outage;
    mod spread;
    mod transit;
}
