//! Lost requests, lost replies, lost messages, and futures dropped anywhere (I5 to I9).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

mod faults {
    mod acquiring;
    mod dropping;
    mod elections;
    mod fixture;
    mod gatherings;
    mod holding;
    mod order;
    mod panics;
    mod reading;
    mod several;
    mod waiting;
    mod wakers;
}
