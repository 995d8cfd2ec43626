//! What one node says about the cluster: which node has which slots.
//!
//! A node may be known by several addresses: while host names are introduced node by node, some answer with names, others with
//! addresses. Its id is the same everywhere.

use std::collections::BTreeMap;

use super::super::address::HostPort;
use super::super::resp::Reply;
use super::super::slot::SLOTS;

/// The cluster as one node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) ranges: Vec<Range>,
    /// The ids of all nodes that have slots, or replicate them, by their addresses.
    pub(super) nodes: BTreeMap<HostPort, NodeId>,
}

/// The id of a node, which no other one has.
pub(super) type NodeId = String;

/// Consecutive slots of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) owner: HostPort,
}

impl View {
    /// Reads the answer to `CLUSTER SLOTS` of the node at `asked`; none if it is not understood.
    pub(super) fn read(reply: &Reply, asked: &HostPort) -> Option<Self> {
        let mut view = Self::default();
        for row in reply.array()? {
            let [first, last, owner, replicas @ ..] = row.array()? else { return None };
            let [first, last] = [first.number()?, last.number()?];
            if first > last || last >= u64::from(SLOTS) {
                return None;
            }
            let replicas = replicas.iter().filter_map(|node| read_node(node, asked));
            view.nodes.extend(replicas);
            // A node whose address is not known has slots that cannot be reached.
            let Some(owner) = read_node(owner, asked) else { continue };
            view.ranges.push(Range {
                first: first as u16,
                last: last as u16,
                owner: owner.0.clone(),
            });
            view.nodes.extend([owner]);
        }
        Some(view)
    }

    /// Whether a node with this address, or this id, has any slots.
    pub(super) fn is_owner(&self, node: &HostPort, id: Option<&NodeId>) -> bool {
        let is_it = |at: &HostPort| at == node || id.is_some() && self.nodes.get(at) == id;
        self.ranges.iter().any(|range| is_it(&range.owner))
    }

    /// Whether a node of another view, or of several, is in this one: then they are views of one cluster.
    pub(super) fn is_about(&self, nodes: &BTreeMap<HostPort, NodeId>) -> bool {
        nodes.values().any(|id| self.nodes.values().any(|it| it == id))
    }
}

/// `[host, port, id, [field, value, …]]`. No host, or an empty one, is that of the node that was asked; a question mark
/// stands for a host name that is not set, and then there may be an address among the fields. Without an id, the address is as
/// good as one.
fn read_node(reply: &Reply, asked: &HostPort) -> Option<(HostPort, NodeId)> {
    let parts = reply.array()?;
    let port = u16::try_from(parts.get(1)?.number()?).ok().filter(|port| *port != 0)?;
    let host = match parts.first()?.text().unwrap_or_default() {
        "" => asked.host.clone(),
        "?" => field(parts.get(3)?, "ip")?,
        host => host.to_owned(),
    };
    let at = HostPort { host, port };
    let id = parts.get(2).and_then(Reply::text).map_or_else(|| at.to_string(), str::to_owned);
    Some((at, id))
}

fn field(fields: &Reply, name: &str) -> Option<String> {
    let words: Vec<_> = fields.array()?.iter().filter_map(Reply::text).collect();
    let found = words.chunks_exact(2).find(|pair| pair[0] == name)?;
    (!found[1].is_empty()).then(|| found[1].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Reply {
        Reply::Text(text.into())
    }

    fn node(host: Reply, port: i64, fields: &[&str]) -> Reply {
        let fields = Reply::Array(fields.iter().map(|word| text(word)).collect());
        Reply::Array(vec![host, Reply::Integer(port), text(&format!("id-{port}")), fields])
    }

    fn row(first: i64, last: i64, nodes: Vec<Reply>) -> Reply {
        Reply::Array([vec![Reply::Integer(first), Reply::Integer(last)], nodes].concat())
    }

    fn at(host: &str, port: u16) -> HostPort {
        HostPort { host: host.into(), port }
    }

    #[test]
    fn hosts_are_read_in_all_their_forms() {
        let reply = Reply::Array(vec![
            row(0, 5, vec![node(text("10.0.0.1"), 7000, &[]), node(text("10.0.0.2"), 7001, &[])]),
            row(6, 7, vec![node(Reply::Nil, 7002, &[])]),
            row(8, 9, vec![node(text("?"), 7003, &["ip", "10.0.0.3"])]),
            row(10, 11, vec![node(text("?"), 7004, &[])]),
        ]);
        let view = View::read(&reply, &at("seed", 7000)).unwrap();
        let owners: Vec<_> = view.ranges.iter().map(|it| it.owner.to_string()).collect();
        assert_eq!(owners, ["10.0.0.1:7000", "seed:7002", "10.0.0.3:7003"]);
        assert_eq!(view.nodes[&at("10.0.0.2", 7001)], "id-7001");
        let is_owner = |host, port| view.is_owner(&at(host, port), None);
        assert!(is_owner("10.0.0.1", 7000) && !is_owner("10.0.0.2", 7001));
    }

    /// Host names were introduced node by node. A node that was known by its address was taken for one that had been replaced,
    /// because others named it by its host.
    #[test]
    fn a_node_is_known_by_its_id_under_any_name() {
        let rows = vec![row(0, 5, vec![node(text("a.example"), 7000, &[])])];
        let view = View::read(&Reply::Array(rows), &at("seed", 7000)).unwrap();
        let (address, id) = (at("10.0.0.1", 7000), "id-7000".to_owned());
        assert!(view.is_owner(&address, Some(&id)) && !view.is_owner(&address, None));
        assert!(view.is_about(&[(address.clone(), id)].into()));
        assert!(!view.is_about(&[(address, "another".to_owned())].into()));
    }

    #[test]
    fn nonsense_is_no_view() {
        let asked = at("seed", 7000);
        let wrong = |reply| View::read(&reply, &asked).is_none();
        assert!(wrong(Reply::Error("ERR This instance has cluster support disabled".into())));
        assert!(wrong(Reply::Array(vec![row(5, 4, vec![node(text("h"), 1, &[])])])));
        assert!(wrong(Reply::Array(vec![row(0, 16_384, vec![node(text("h"), 1, &[])])])));
        assert!(wrong(Reply::Array(vec![Reply::Integer(7)])));
    }
}
