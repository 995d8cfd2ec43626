//! Redirections: a node of a cluster answers that another one has the slot.
//!
//! A node that redirects a call has not performed it.

use super::address::{Address, HostPort, Master};
use super::resp::Reply;
use crate::error::StoreError;

/// Where a node redirects a request to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Redirect {
    pub(super) slot: u16,
    /// None if the node does not say where.
    pub(super) at: Option<HostPort>,
    /// The slot is in transit: for this request alone, and to be announced by ASKING.
    pub(super) is_ask: bool,
}

/// The redirection in a reply of a node of a cluster.
pub(super) fn read(reply: &Reply, asked: &Address) -> Option<Redirect> {
    match (reply, &asked.master) {
        (Reply::Error(error), Master::Member(node)) => parse(error, &node.at.host),
        _ => None,
    }
}

/// `MOVED slot host:port` or `ASK slot host:port`. Without a host, it is the host that was asked; a question mark stands
/// for a host that the node does not know.
fn parse(error: &str, asked: &str) -> Option<Redirect> {
    let mut words = error.split(' ');
    let is_ask = match words.next()? {
        "MOVED" => false,
        "ASK" => true,
        _ => return None,
    };
    let slot = words.next()?.parse().ok()?;
    let (host, port) = words.next()?.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let host = match host.trim_matches(['[', ']']) {
        "" => Some(asked),
        "?" => None,
        host => Some(host),
    };
    let at = host.map(|host| HostPort { host: host.to_owned(), port });
    Some(Redirect { slot, at, is_ask })
}

/// Whether an error is a redirection.
pub(super) fn is_one(error: &str) -> bool {
    parse(error, "").is_some()
}

pub(super) fn too_often() -> StoreError {
    StoreError::refused(
        "the nodes of the cluster redirect this request to one another: its slot is being moved",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Option<HostPort> {
        Some(HostPort { host: host.into(), port })
    }

    #[test]
    fn redirections_are_read() {
        let parse = |error: &str| super::parse(error, "10.0.0.1");
        let moved = parse("MOVED 3999 127.0.0.1:6381").unwrap();
        assert_eq!((moved.slot, moved.at, moved.is_ask), (3999, at("127.0.0.1", 6381), false));
        let ask = parse("ASK 7 redis-3.example:7000").unwrap();
        assert_eq!((ask.slot, ask.at, ask.is_ask), (7, at("redis-3.example", 7000), true));
        assert_eq!(parse("MOVED 7 ::1:7000").unwrap().at, at("::1", 7000));
        assert_eq!(
            parse("MOVED 7460 :7001").unwrap().at,
            at("10.0.0.1", 7001),
            "the host that was asked"
        );
        assert_eq!(parse("MOVED 7460 ?:7001").unwrap().at, None);
        assert_eq!(parse("TRYAGAIN Multiple keys request during rehashing of slot"), None);
        assert_eq!(parse("CLUSTERDOWN Hash slot not served"), None);
        assert_eq!(parse("MOVED 3999"), None);
    }
}
