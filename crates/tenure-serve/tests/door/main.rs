//! The HTTP interface (R37), as clients in any language use it: plain requests on real connections, on a real store.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod acquire;
mod bounds;
mod clients;
mod connecting;
mod events;
mod fixture;
mod looking;
mod names;
mod redisson;
mod rights;
mod stopping;
mod streams;
mod terraform;
