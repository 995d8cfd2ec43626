//! Whether a server is the one that may be written to.
//!
//! Behind an address that is forwarded, a server may be made a replica, or another one be meant by
//! now. So each new connection asks, and one that leads to a replica is not used.

use super::address::Endpoint;
use super::resp::{Command, Reply};
use crate::error::StoreError;

/// What to ask until one tells: a user may not be allowed to ask the first.
///
/// A server that does not tell, because this user may ask neither or the server knows neither, is used:
/// it refuses what it cannot do.
pub(super) fn questions() -> [Command; 2] {
    [Command::new("ROLE"), Command::new("INFO").arg("replication")]
}

/// Whether the answer says that this is the master.
///
/// # Errors
/// When it says that it is something else.
pub(super) fn is_master(reply: &Reply, place: &Endpoint) -> Result<bool, StoreError> {
    match read(reply) {
        Some("master") => Ok(true),
        Some(role) => Err(refuse(place, role)),
        None => Ok(false),
    }
}

/// The role, from the answer to either question.
fn read(reply: &Reply) -> Option<&str> {
    match reply {
        Reply::Array(words) => words.first()?.text(),
        Reply::Text(_) => reply.text()?.lines().find_map(|line| line.strip_prefix("role:")),
        _ => None,
    }
}

fn refuse(place: &Endpoint, role: &str) -> StoreError {
    let role = if role == "slave" { "replica" } else { role };
    let what =
        format!("{place} takes no locks: READONLY because it is a {role}: connect to the master");
    StoreError::refused(what).answered()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_role_is_read_from_either_answer() {
        let text = |text: &str| Reply::Text(text.into());
        assert_eq!(read(&Reply::Array(vec![text("slave"), text("host")])), Some("slave"));
        let info = text("# Replication\r\nrole:master\r\nconnected_slaves:0\r\n");
        assert_eq!(read(&info), Some("master"));
        assert_eq!(read(&Reply::Error("NOPERM".into())), None);
        assert_eq!(read(&text("redis_version:7.0.15")), None);
    }
}
