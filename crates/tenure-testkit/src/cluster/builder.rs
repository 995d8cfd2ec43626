//! How a cluster is set up.

use std::ffi::OsString;
use std::time::Duration;

use crate::builder::Builder;
use crate::flavor::Flavor;
use crate::server::Server;

use super::{Cluster, Node, slot};

const TOO_OLD: &str = "has no sharded publish and subscribe, which a cluster needs; use Redis 7.0 or later, or Valkey";

/// Sets up a [`Cluster`]. By default: three primaries with one replica each.
#[derive(Clone, Debug)]
#[must_use = "a builder starts nothing until `start` is called"]
pub struct ClusterBuilder {
    flavor: Flavor,
    primaries: usize,
    replicas: usize,
    server: Builder,
}

impl ClusterBuilder {
    pub(super) fn new(flavor: Flavor) -> Self {
        let server = Server::builder()
            .flavor(flavor)
            .arg("--cluster-enabled", "yes")
            // Otherwise a node does not know its own address until another one connects to it.
            .arg("--cluster-announce-ip", "127.0.0.1")
            // A replica is served at once; usually a primary waits for others to come.
            .arg("--repl-diskless-sync-delay", "0");
        // As short as a busy machine allows: a failover takes two to four times as long.
        Self { flavor, primaries: 3, replicas: 1, server }.node_timeout(Duration::from_millis(500))
    }

    /// So many primaries, which share the slots evenly. A failover needs the votes of a majority of them.
    pub fn primaries(mut self, count: usize) -> Self {
        self.primaries = count;
        self
    }

    /// So many replicas for each primary.
    pub fn replicas(mut self, count: usize) -> Self {
        self.replicas = count;
        self
    }

    /// Sets after how long without an answer a node counts as failed: 500 ms, unless set.
    pub fn node_timeout(self, time: Duration) -> Self {
        self.arg("--cluster-node-timeout", time.as_millis().to_string())
    }

    /// Sets whether all nodes refuse commands while one slot is not served: yes in a server's default.
    pub fn full_coverage(self, is_required: bool) -> Self {
        self.arg("--cluster-require-full-coverage", if is_required { "yes" } else { "no" })
    }

    /// Adds a setting to all nodes. It goes after the defaults, so it wins.
    pub fn arg(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.server = self.server.arg(name, value);
        self
    }

    /// Starts the cluster, and waits until it serves all slots and the replicas follow: two seconds.
    ///
    /// # Panics
    ///
    /// If one of the servers is missing, too old, or does not start; the message says why.
    pub fn start(self) -> Cluster {
        assert!(self.flavor != Flavor::Redis6, "{} {TOO_OLD}", self.flavor);
        let count = self.primaries * (1 + self.replicas);
        // A port whose bus port is taken makes the server end at its start; it is started on another one.
        let nodes: Vec<_> = (0..count).map(|_| Node::start(self.server.clone())).collect();
        let version = nodes[0].server().version();
        assert!(version.number >= (7, 0, 0), "{version} {TOO_OLD}");
        let cluster = Cluster { nodes };
        self.join(&cluster);
        cluster.await_ok();
        cluster
    }

    fn join(&self, cluster: &Cluster) {
        let nodes = &cluster.nodes;
        for node in 0..nodes.len() {
            // Equal epochs would be sorted out only later, and slots with them.
            let epoch = (node + 1).to_string();
            cluster.order(node, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
        }
        for node in 0..self.primaries {
            let slots = slot::share(node, self.primaries);
            let (first, last) = (slots.start().to_string(), slots.end().to_string());
            cluster.order(node, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
        }
        for other in &nodes[1..] {
            cluster.order(0, &["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]);
        }
        for replica in self.primaries..nodes.len() {
            let primary = nodes[replica % self.primaries].id();
            // The replica gets to know the primary from a third node.
            cluster.until("a replica knows its primary", || {
                let reply = nodes[replica].ask_text(&["CLUSTER", "REPLICATE", primary])?;
                (reply == "OK").then_some(())
            });
        }
    }
}
