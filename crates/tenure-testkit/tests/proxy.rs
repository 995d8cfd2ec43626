//! The proxy carries everything, and each of its faults does what it says, to nothing else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod proxy {
    mod carriage;
    mod connections;
    mod fixture;
    mod losses;
    mod messages;
    mod record;
    mod waits;
}
