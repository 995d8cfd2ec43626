//! A quorum of real servers: killed, stopped, cut off, emptied, and with clocks that are set.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/waiting.rs"]
mod waiting;

mod quorum {
    pub(crate) mod fixture;

    mod clocks;
    mod data_loss;
    mod detached;
    mod ends;
    pub(crate) mod entries;
    mod failures;
    mod gate;
    mod handles;
    pub(crate) mod independence;
    mod keeping;
    mod kinds;
    mod marking;
    mod partitions;
    mod reentries;
    mod rounds;
}
