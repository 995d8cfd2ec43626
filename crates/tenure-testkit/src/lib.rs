//! What Tenure's tests stand on: real servers, started and stopped by the test.
//!
//! - [`Server`] is a Redis or Valkey server of the test's own, in a folder of its own; [`Builder`] sets
//!   it up, [`Version`] says which one it is.
//! - [`resp`] speaks to it plainly, without the library under test.
//! - [`program`] finds the server's program. A missing one fails the test: a suite that skips is green
//!   for the wrong reason.
//!
//! All of it blocks and panics with a sentence, as tests like it.

pub mod program;
pub mod resp;

mod builder;
mod endpoint;
mod guardian;
mod server;
mod version;
mod wait;

pub use builder::Builder;
pub use server::Server;
pub use version::Version;
