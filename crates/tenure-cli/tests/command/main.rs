//! The command as a user types it: real processes, on a store without a server and on a real Redis.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
mod fixture;

mod book;
mod completion;
mod detached;
mod doctor;
mod election;
mod exporter;
mod fight;
mod guardian;
mod hold;
mod holders;
mod inspect;
mod jobs;
mod lab;
mod limits;
mod loss;
mod namespace;
mod patience;
mod pipes;
mod process_tree;
mod quorum;
mod redisson;
mod replicas;
mod run;
mod screen;
mod serve;
mod sharing;
mod terminal;
mod url;
