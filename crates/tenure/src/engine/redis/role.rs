//! Whether a server is the master, and so takes writes; and whether it is a node of a cluster.
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

/// The command that returns whether a server is a node of a cluster. Every user may run it.
pub(super) fn mode_question() -> Command {
    Command::new("HELLO")
}

/// Refuses a node of a cluster, where one server is expected: it has some of the locks, would redirect all others, and would not
/// be left when it is replaced. A server that does not answer the question is used.
///
/// # Errors
/// When the server says that it is a node of a cluster.
pub(super) fn refuse_member(reply: &Reply, endpoint: &Endpoint) -> Result<(), StoreError> {
    let words = reply.array().unwrap_or_default();
    let mut fields = words.chunks_exact(2);
    let mode = fields.find(|pair| pair[0].text() == Some("mode")).and_then(|pair| pair[1].text());
    if mode != Some("cluster") {
        return Ok(());
    }
    let what = format!(
        "{endpoint} is a node of a cluster, so write redis+cluster:// for redis://, or for rediss:// \
         rediss+cluster://"
    );
    Err(StoreError::refused(what).answered().lasting())
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
    #[test]
    fn a_node_of_a_cluster_is_refused() {
        let text = |text: &str| Reply::Text(text.into());
        let endpoint = Endpoint::Tcp("h1".into(), 6379);
        let answer = |mode: &str| {
            let words = ["server", "redis", "proto", "2", "mode", mode, "role", "master"];
            refuse_member(&Reply::Array(words.iter().map(|word| text(word)).collect()), &endpoint)
        };
        let refused = answer("cluster").unwrap_err();
        assert!(refused.to_string().contains("redis+cluster://") && refused.is_lasting());
        assert!(answer("standalone").is_ok());
        let unknown = Reply::Error("ERR unknown command 'HELLO'".into());
        assert!(refuse_member(&unknown, &endpoint).is_ok());
    }
}
