//! The options of a client.

use std::time::Duration;

use tokio::runtime::Handle;

use super::marker::Marker;
use super::protocol::Protocol;
use crate::core::fence::RETENTION;
use crate::info::About;

/// The options of a client.
pub(crate) struct Options {
    /// Host, process and program, as shown to other clients.
    pub(crate) about: About,
    /// For how long fences outlive their locks.
    pub(crate) retention: Duration,
    /// The runtime that reads replies and wake-ups, if not the I/O thread. Its I/O must be enabled.
    pub(crate) runtime: Option<Handle>,
    /// The marker of the quorum that the server is a node of. With it, fences are kept for the default time at least: a
    /// node relies on it that no fence was forgotten earlier (`core/proposal.rs`).
    pub(crate) quorum: Option<Marker>,
    /// The format of the locks; the URL may name one.
    pub(crate) protocol: Protocol,
    /// The runtime of an I/O thread that other engines use, too.
    pub(crate) io: Option<Handle>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            about: About::this_process(),
            retention: RETENTION,
            runtime: None,
            quorum: None,
            protocol: Protocol::Tenure,
            io: None,
        }
    }
}
