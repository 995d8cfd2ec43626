//! What Tenure's tests stand on: real servers, started and stopped by the test, and faults between.
//!
//! - [`Server`] is a Redis or Valkey server of the test's own, in a folder of its own; [`Builder`] sets
//!   it up, [`Flavor`] chooses the kind, [`Version`] says which one it is, [`Tls`] encrypts. A missing one
//!   fails the test: a suite that skips is green for the wrong reason.
//! - [`Sentinels`] are a master, its replicas, and the Sentinels that watch them.
//! - [`Clock`] is the calendar of a server, set forward or back while it runs.
//! - [`Proxy`] stands between a client and a server, and loses, delays or holds what passes.
//! - [`Distance`] stands there, too, and only makes the way longer, for all that passes.
//! - [`resp`] speaks to it plainly, without the library under test.
//!
//! All of it blocks and panics with a sentence, as tests like it.

pub mod proxy;
pub mod resp;

mod builder;
mod clock;
mod distance;
mod endpoint;
mod flavor;
mod guardian;
mod port;
mod program;
mod sentinels;
mod server;
mod stream;
mod tls;
mod version;
mod wait;

pub use builder::Builder;
pub use clock::Clock;
pub use distance::Distance;
pub use flavor::Flavor;
pub use proxy::Proxy;
pub use sentinels::Sentinels;
pub use server::Server;
pub use tls::Tls;
pub use version::Version;
