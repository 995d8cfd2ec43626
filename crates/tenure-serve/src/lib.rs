//! `tenure serve`: a dashboard of a store's locks, and an HTTP interface to them for every language.
//!
//! ```text
//! listener   accepts connections, within bounds; the exporter uses it, too
//! gate       what is refused before any handler runs: foreign hosts and origins, missing rights
//! link       the connection to the store, shared by all requests
//! door/      acquire, renew, release, list: one HTTP request each
//! terraform  the locking of the HTTP backend of Terraform and OpenTofu
//! watcher/   reads the store once for all viewers, and sends them what has changed
//! page       the dashboard's files, which are part of the program
//! shape      locks as JSON, as the command prints them; `word` has the words of its exit statuses
//! ```
//!
//! The server keeps no lock for a client that has got its handle: it is detached, and any server of the same store renews and
//! releases it. Locks of event streams are held by the server, and are released when the stream ends.

mod access;
mod body;
mod clock;
mod door;
mod gate;
mod hosts;
mod link;
pub mod listener;
mod page;
mod problem;
mod server;
pub mod shape;
mod stream;
mod terraform;
pub mod tls;
mod watcher;
pub mod word;

pub use access::{Access, Token, WrongToken};
pub use hosts::Hosts;
pub use server::{Client, Connect, Limits, Server};
