//! Whether a server is the master, and so takes writes.
//!
//! The server at an address may become a replica, and the address may be forwarded to another server. So each new
//! connection queries the role, and a connection to a replica is not used.

use super::address::Endpoint;
use super::resp::{Command, Reply};
use crate::error::StoreError;

/// The commands to try until one returns the role: a user may lack permission for the first.
///
/// A server that answers neither, because this user may run neither or the server has neither, is used:
/// a replica refuses writes.
pub(super) fn questions() -> [Command; 2] {
    [Command::new("ROLE"), Command::new("INFO").arg("replication")]
}

/// Whether the answer says that this is the master.
///
/// # Errors
/// When it says that it is something else.
pub(super) fn is_master(reply: &Reply, endpoint: &Endpoint) -> Result<bool, StoreError> {
    match read(reply) {
        Some("master") => Ok(true),
        Some(role) => Err(refuse(endpoint, role)),
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

fn refuse(endpoint: &Endpoint, role: &str) -> StoreError {
    let role = if role == "slave" { "replica" } else { role };
    let what = format!(
        "{endpoint} grants no locks: READONLY because it is a {role}: connect to the master"
    );
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
