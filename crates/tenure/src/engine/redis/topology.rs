//! The servers behind a client: primaries, their replicas, and the Sentinels that watch them.

use super::address::Master;
use super::checkup::{Info, info};
use super::node::Node;
use super::routes::Routes;
use super::sentinel::Asked;
use super::server::Server;
use crate::engine::topology::{NodeInfo, Topology};
use crate::error::StoreError;

pub(super) async fn topology(server: &Server) -> Result<Topology, StoreError> {
    let nodes = server.routes.nodes();
    let mut topology = Topology::new(match (&server.routes, nodes.first()) {
        (Routes::Cluster(_), _) => "cluster",
        (_, Some(node)) if is_named(node) => "sentinel",
        _ => "single",
    });
    for node in &nodes {
        let sentinels = node.ask_sentinels().await.unwrap_or_default();
        let named = sentinels.iter().find_map(|(_, answer)| answer.as_ref().ok()?.as_ref());
        let address = || node.commands.address.master.to_string();
        let name = named.map_or_else(address, ToString::to_string);
        let mut primary = NodeInfo::new(&name, "primary");
        if let Routes::Cluster(cluster) = &server.routes {
            primary.slots = Some(cluster.slots_of(node.number));
        }
        let mut replicas = Vec::new();
        match info(&node.commands).await {
            Ok(Some(info)) => {
                describe(&mut primary, &info);
                replicas = self::replicas(&info, &name);
            }
            Ok(None) => {}
            Err(error) => (primary.is_up, primary.error) = (false, Some(error.to_string())),
        }
        topology.nodes.push(primary);
        topology.nodes.extend(replicas);
        topology.nodes.extend(sentinels.into_iter().map(sentinel));
    }
    Ok(topology)
}

/// A Sentinel, and the master that it names.
fn sentinel((peer, answer): Asked) -> NodeInfo {
    let mut sentinel = NodeInfo::new(peer.to_string(), "sentinel");
    match answer {
        Ok(named) => sentinel.of = named.map(|named| named.to_string()),
        Err(error) => (sentinel.is_up, sentinel.error) = (false, Some(error.to_string())),
    }
    sentinel
}

fn is_named(node: &Node) -> bool {
    matches!(node.commands.address.master, Master::Named(_))
}

/// What the reply to INFO says about the server itself.
fn describe(node: &mut NodeInfo, info: &Info) {
    let number = |field: &str| info.get(field).and_then(|value| value.parse().ok());
    node.memory = number("used_memory");
    node.memory_limit = number("maxmemory").filter(|limit| *limit > 0);
    let version = info.get("valkey_version").map(|version| format!("Valkey {version}"));
    node.version = version.or_else(|| Some(format!("Redis {}", info.get("redis_version")?)));
    if info.get("role").is_some_and(|role| role != "master") {
        node.role = "replica";
    }
}

/// The replicas that a primary knows, as in `slave0:ip=10.0.0.2,port=6379,state=online,offset=1,lag=0`.
fn replicas(info: &Info, primary: &str) -> Vec<NodeInfo> {
    let fields = (0..).map_while(|number| info.get(&format!("slave{number}")));
    let read = |text: &String| {
        let part = |name: &str| {
            text.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
        };
        let mut replica = NodeInfo::new(format!("{}:{}", part("ip")?, part("port")?), "replica");
        replica.of = Some(primary.to_owned());
        if let Some(state) = part("state").filter(|state| *state != "online") {
            (replica.is_up, replica.error) = (false, Some(format!("its state is {state}")));
        }
        Some(replica)
    };
    fields.filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_read_from_what_their_primary_says() {
        let fields = [
            ("slave0", "ip=10.0.0.2,port=6380,state=online,offset=14,lag=1"),
            ("slave1", "ip=10.0.0.3,port=6380,state=wait_bgsave,offset=0,lag=0"),
        ];
        let info: Info = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let found = replicas(&info, "10.0.0.1:6379");
        assert_eq!(found.len(), 2);
        assert_eq!((&*found[0].name, found[0].is_up), ("10.0.0.2:6380", true));
        assert_eq!(found[1].error.as_deref(), Some("its state is wait_bgsave"));
        assert_eq!(found[1].of.as_deref(), Some("10.0.0.1:6379"));
    }
}
