//! A Redis Cluster of real servers.
//!
//! Nodes are known by their number: at the start the primaries come first, then their replicas. A failover
//! changes roles, not numbers. What the cluster decided is read from the nodes that are live, which are
//! those that the test neither killed nor paused.

mod builder;
mod layout;
mod migration;
mod node;
mod slot;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::flavor::Flavor;
use crate::resp::Reply;
use crate::version::field;
use crate::wait;
use layout::Layout;

pub use builder::ClusterBuilder;
pub use migration::KeyOrder;
pub use node::Node;

/// How long the nodes may take to agree: usually two seconds, longer where an election is repeated.
const BOUND: Duration = Duration::from_secs(60);

/// Between two polls of all nodes: they need the CPU more than the test does.
const PAUSE: Duration = Duration::from_millis(10);

/// How long a node tries a failover before it gives up: five seconds, and the time that the others need.
const FAILOVER_BOUND: Duration = Duration::from_secs(10);

/// A Redis Cluster, which stops when this is dropped.
#[derive(Debug)]
#[must_use = "all nodes stop when this is dropped"]
pub struct Cluster {
    /// The nodes; at the start the primaries come first, then their replicas in the same order.
    pub nodes: Vec<Node>,
}

impl Cluster {
    /// Starts three primaries with one replica each, and waits until they serve all slots.
    ///
    /// # Panics
    ///
    /// If one does not start, or is too old; the message says why.
    pub fn start(flavor: Flavor) -> Self {
        Self::builder(flavor).start()
    }

    /// Sets up a cluster in another way.
    pub fn builder(flavor: Flavor) -> ClusterBuilder {
        ClusterBuilder::new(flavor)
    }

    /// The kinds of server that can form a cluster and that `TENURE_TEST_ONLY` does not leave out.
    pub fn flavors() -> impl Iterator<Item = Flavor> {
        Flavor::wanted().filter(|flavor| *flavor != Flavor::Redis6)
    }

    /// The slot of a key.
    #[must_use]
    pub fn slot(key: impl AsRef<[u8]>) -> u16 {
        slot::of(key.as_ref())
    }

    /// The URL with all nodes.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> =
            self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// The URL with one node alone.
    #[must_use]
    pub fn url_of_one(&self) -> String {
        format!("redis+cluster://127.0.0.1:{}", self.nodes[0].port())
    }

    /// The node that serves the slot, as a majority of the live nodes says. After a crash that is the
    /// dead node, until its replica has taken over.
    ///
    /// # Panics
    ///
    /// If no majority names one.
    #[must_use]
    pub fn owner(&self, slot: u16) -> usize {
        self.until(&format!("a majority names the owner of slot {slot}"), || {
            let views: Vec<_> = self.live().map(|node| self.layout_of(node)).collect();
            let named: Vec<_> = views.iter().flatten().filter_map(|it| it.owner(slot)).collect();
            let count = |node| named.iter().filter(|it| **it == node).count();
            named.iter().copied().find(|node| count(*node) > views.len() / 2)
        })
    }

    /// A live replica of a primary.
    ///
    /// # Panics
    ///
    /// If it has none.
    #[must_use]
    pub fn replica_of(&self, primary: usize) -> usize {
        self.until(&format!("node {primary} has a live replica"), || {
            let layout = self.layout()?;
            self.live().find(|node| *node != primary && layout.primary_of(*node) == primary)
        })
    }

    /// Asks a replica of a primary to take over, and waits until all live nodes see that it has.
    /// Returns the number of that replica.
    ///
    /// # Panics
    ///
    /// If it does not take over.
    pub fn fail_over(&self, primary: usize) -> usize {
        let replica = self.replica_of(primary);
        self.until("the replica follows its primary", || self.is_linked(replica).then_some(()));
        let mut reply = None;
        // An election on a busy machine may find no majority in time. The replica does not repeat it.
        for _ in 0..BOUND.as_secs() / FAILOVER_BOUND.as_secs() {
            reply = self.nodes[replica].ask(&["CLUSTER", "FAILOVER"]);
            let seen = wait::every(PAUSE, FAILOVER_BOUND, || {
                (self.layout()?.primary_of(primary) == replica).then_some(())
            });
            if seen.is_some() {
                return replica;
            }
        }
        panic!(
            "node {replica} did not take over from {primary}, after {reply:?}:\n{}",
            self.views()
        )
    }

    /// Waits until all live nodes agree that another node than this one serves the slot, and which.
    ///
    /// # Panics
    ///
    /// If none takes over.
    pub fn await_owner_other_than(&self, slot: u16, node: usize) -> usize {
        self.until(&format!("another node than {node} serves slot {slot}"), || {
            self.layout()?.owner(slot).filter(|owner| *owner != node)
        })
    }

    /// Waits until the live nodes serve all slots, agree on the owners, and every live replica of a live
    /// primary follows it. All know the epochs, too: a move of slots makes a new one without asking, and a replica that does not know
    /// it takes over with an older one, which the others never accept.
    ///
    /// # Panics
    ///
    /// If that does not come to pass.
    pub fn await_ok(&self) {
        self.until("the cluster serves all slots", || {
            let layout = self.layout()?;
            let follows = |node: usize| {
                let primary = layout.primary_of(node);
                primary == node || !self.nodes[primary].is_live() || self.is_linked(node)
            };
            let is_ok = self.live().all(|node| self.is_ok(node) && follows(node));
            (is_ok && self.are_epochs_known()).then_some(())
        });
    }

    /// Sends a command to a node, on a new connection.
    ///
    /// # Panics
    ///
    /// If the node does not answer. A refusal is [`Reply::Error`].
    pub fn command<W: AsRef<[u8]>>(&self, node: usize, words: &[W]) -> Reply {
        self.nodes[node].ask(words).unwrap_or_else(|| panic!("node {node} did not answer"))
    }

    /// Deletes all keys, on all live primaries.
    ///
    /// # Panics
    ///
    /// If the live nodes do not agree on the primaries, or one refuses.
    pub fn flush(&self) {
        self.primaries().into_iter().for_each(|node| self.order(node, &["FLUSHALL"]));
    }

    /// The live primaries.
    ///
    /// # Panics
    ///
    /// If the live nodes do not agree.
    #[must_use]
    pub fn primaries(&self) -> Vec<usize> {
        let layout = self.until("the nodes agree on the primaries", || self.layout());
        self.live().filter(|node| layout.primary_of(*node) == *node).collect()
    }

    /// Sends a command that must succeed.
    fn order(&self, node: usize, words: &[&str]) {
        let reply = self.command(node, words);
        let is_ok = reply == Reply::Simple("OK".into());
        assert!(is_ok, "node {node} answered {words:?} with {reply:?}");
    }

    fn live(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].is_live())
    }

    /// The layout that all live nodes see; none while they differ.
    fn layout(&self) -> Option<Layout> {
        let mut layouts = self.live().map(|node| self.layout_of(node));
        let first = layouts.next()??;
        layouts.all(|other| other.as_ref() == Some(&first)).then_some(first)
    }

    fn layout_of(&self, node: usize) -> Option<Layout> {
        let ids: Vec<_> = self.nodes.iter().map(Node::id).collect();
        Layout::parse(&self.nodes[node].ask_text(&["CLUSTER", "NODES"])?, &ids)
    }

    /// Whether all live nodes know the epoch of each live primary, and no two primaries have the same.
    fn are_epochs_known(&self) -> bool {
        let ids: Vec<_> = self.nodes.iter().map(Node::id).collect();
        let seen_by = |node: usize| {
            let text = self.nodes[node].ask_text(&["CLUSTER", "NODES"])?;
            let all = layout::epochs(&text, &ids).into_iter();
            Some(all.filter(|(node, _)| self.nodes[*node].is_live()).collect::<Vec<_>>())
        };
        let seen: Vec<_> = self.live().map(seen_by).collect();
        let Some(Some(first)) = seen.first() else { return false };
        let different: BTreeSet<_> = first.iter().map(|(_, epoch)| epoch).collect();
        different.len() == first.len() && seen.iter().all(|it| it.as_ref() == Some(first))
    }

    /// Whether a node serves its part and believes that all others do.
    fn is_ok(&self, node: usize) -> bool {
        let Some(info) = self.nodes[node].ask_text(&["CLUSTER", "INFO"]) else { return false };
        // Without required coverage the state alone is ok with slots that are not served.
        let all = slot::SLOTS.to_string();
        field(&info, "cluster_state") == Some("ok")
            && field(&info, "cluster_slots_ok") == Some(&all)
    }

    fn is_linked(&self, replica: usize) -> bool {
        let info = self.nodes[replica].ask_text(&["INFO", "replication"]);
        info.is_some_and(|info| field(&info, "master_link_status") == Some("up"))
    }

    fn until<T>(&self, what: &str, ask: impl FnMut() -> Option<T>) -> T {
        wait::every(PAUSE, BOUND, ask)
            .unwrap_or_else(|| panic!("{what}: not within {BOUND:?}:\n{}", self.views()))
    }

    /// What each live node sees, for a test that failed.
    fn views(&self) -> String {
        let view = |node: usize| {
            let seen = self.nodes[node].ask_text(&["CLUSTER", "NODES"]);
            format!("node {node}:\n{}", seen.unwrap_or_else(|| "no answer\n".into()))
        };
        self.live().map(view).collect()
    }
}
