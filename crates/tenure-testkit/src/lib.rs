//! Real servers for Tenure's tests, started and stopped by the test, and faults on the connection to them.
//!
//! - [`Server`] is a Redis or Valkey server that belongs to one test, in its own folder; [`Builder`] sets
//!   it up, [`Flavor`] is its kind, [`Version`] its exact version, [`Tls`] its certificates. A missing
//!   server fails the test: a suite that skips is green for the wrong reason.
//! - [`Sentinels`] are a master, its replicas, and the Sentinels that watch them.
//! - [`Cluster`] is a Redis Cluster, whose [`Node`]s a test kills and pauses, and whose slots it migrates;
//!   [`ClusterBuilder`] sets it up.
//! - [`Clock`] sets the wall clock of a server forward or back while it runs.
//! - [`Proxy`] sits between a client and a server, and drops, delays or holds messages.
//! - [`Distance`] sits there, too, and only adds latency, the same for all bytes.
//! - [`Postgres`] is a PostgreSQL server that belongs to one test; [`Toolset`] finds its programs, and those of other tools.
//! - [`Redisson`] is the Java program in `interop/redisson`; an [`Agent`] is a process that runs it.
//! - [`resp`] is a plain client, independent of the library under test.
//! - [`program`] finds the servers' programs.
//!
//! All of it blocks, and panics with a sentence that names the cause.

pub mod program;
pub mod proxy;
pub mod resp;

mod builder;
mod clock;
mod cluster;
mod distance;
mod endpoint;
mod flavor;
mod folder;
mod guardian;
mod port;
mod postgres;
mod redisson;
mod sentinels;
mod server;
mod stream;
mod tls;
mod toolset;
mod version;
mod wait;

pub use builder::Builder;
pub use clock::Clock;
pub use cluster::{Cluster, ClusterBuilder, KeyOrder, Node};
pub use distance::Distance;
pub use flavor::Flavor;
pub use postgres::Postgres;
pub use proxy::Proxy;
pub use redisson::{Agent, Asked, Codec, Redisson};
pub use sentinels::Sentinels;
pub use server::Server;
pub use tls::Tls;
pub use toolset::Toolset;
pub use version::Version;
