//! The marker of a quorum: a key of each of its nodes.
//!
//! A server that has lost its data could grant a lock that a majority has granted before. So every operation on a node
//! checks the marker in the same step (`lua/quorum_read.lua`): without it, the server is quarantined, and refuses.

use std::fmt;
use std::sync::Arc;

use super::address::Endpoint;
use super::resp::{Command, Reply};
use super::survey::field;
#[cfg(test)]
use super::{RedisEngine, errors, keys};
use crate::error::{Invalid, StoreError};

/// The text that marks a server as a node of one quorum, and the process that was admitted with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    text: Arc<str>,
    run_id: Option<Arc<str>>,
}

impl Marker {
    /// The longest marker, in bytes: every call has it as an argument.
    const MAX: usize = 128;

    /// Checks a text: visible ASCII characters, without blanks, because people copy it.
    pub(crate) fn new(text: &str) -> Result<Self, Invalid> {
        let is_word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_word && text.len() <= Self::MAX {
            return Ok(Self { text: text.into(), run_id: None });
        }
        let most = Self::MAX;
        Err(Invalid::new(format!(
            "a quorum's marker must be 1 to {most} visible ASCII characters without blanks"
        )))
    }

    /// Connects to the process with this run id only: another one may have lost what the first one knew, although it
    /// has the marker.
    pub(crate) fn of_process(self, run_id: &str) -> Self {
        Self { run_id: Some(run_id.into()), ..self }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// The question to ask on a new connection, if any.
    pub(super) fn question(&self) -> Option<Command> {
        self.run_id.as_ref().map(|_| Command::new("INFO").arg("server"))
    }

    /// Checks the answer.
    pub(super) fn check(&self, reply: &Reply, endpoint: &Endpoint) -> Result<(), StoreError> {
        let run_id = reply.text().and_then(|info| field(info, "run_id"));
        if self.run_id.as_deref() == run_id {
            return Ok(());
        }
        let what = format!("{endpoint} was restarted, and does not count until that is long ago");
        Err(StoreError::refused(what).answered().quarantined())
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
impl RedisEngine {
    /// Returns the marker that the server has; none if it is new, or has lost its data.
    pub(crate) async fn read_marker(&self) -> Result<Option<String>, StoreError> {
        let get = Command::new("GET").arg(keys::QUORUM);
        let reply = self.server.request_at(keys::QUORUM, &get).await?;
        match errors::error_in(&reply) {
            Some(error) => Err(errors::of_server(error)),
            None => Ok(reply.text().map(str::to_owned)),
        }
    }

    /// Marks the server, whatever marker it has.
    pub(crate) async fn write_marker(&self, marker: &Marker) -> Result<(), StoreError> {
        let set = Command::new("SET").arg(keys::QUORUM).arg(marker.to_string());
        let reply = self.server.request_at(keys::QUORUM, &set).await?;
        errors::error_in(&reply).map_or(Ok(()), |error| Err(errors::of_server(error)))
    }
}
