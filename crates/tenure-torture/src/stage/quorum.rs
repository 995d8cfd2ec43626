//! Five independent servers. Each fault is one of one node; nothing excuses two holders.

use tenure::blocking::block_on;
use tenure::engine::QuorumEngine;

use super::node::Node;
use super::{Stage, Usage};
use crate::fault::Fault;
use crate::time::{Micros, now};
use crate::worker::LEASE;

const NODES: usize = 5;

/// For so long a node may have no vote after it was restarted, lost its data, or its clock was set: the longest lease and 30 s,
/// and until clients, which look at it every eight seconds and are killed meanwhile, have admitted it.
const WITHOUT_VOTE: Micros = 60_000_000;

pub(super) struct Nodes {
    nodes: Vec<Node>,
    /// Until when each has no vote.
    absent: Vec<Micros>,
}

impl Nodes {
    pub(super) fn start() -> Self {
        let nodes = (0..NODES).map(|_| Node::start()).collect();
        let nodes = Self { nodes, absent: vec![0; NODES] };
        // A node that has lost its data has no vote for as long as this: twice the lease that is used.
        block_on(QuorumEngine::mark_nodes(&nodes.url(), Some(2 * LEASE), false))
            .unwrap_or_else(|error| panic!("the nodes cannot be marked: {error}"));
        nodes
    }
}

impl Stage for Nodes {
    fn url(&self) -> String {
        let hosts = self.nodes.iter().map(|node| node.proxy.url().replacen("redis://", "", 1));
        format!("redis+quorum://{}", hosts.collect::<Vec<_>>().join(","))
    }

    fn faults(&self) -> Vec<Fault> {
        Node::FAULTS.to_vec()
    }

    fn excuses(&self, _: Fault) -> bool {
        false
    }

    /// A majority keeps its vote: otherwise nothing is granted, and nothing can go wrong. Any node may be slow or cut off.
    fn inject(&mut self, fault: Fault, random: &mut fastrand::Rng) -> bool {
        let node = random.usize(..NODES);
        let costs_vote = matches!(
            fault,
            Fault::KillServer
                | Fault::EmptyServer
                | Fault::FlushAll
                | Fault::ClockForward
                | Fault::ClockBack
        );
        let others = self.absent.iter().enumerate().filter(|(other, _)| *other != node);
        let absent = others.filter(|(_, until)| **until > now()).count();
        if costs_vote && absent >= NODES / 2 {
            return false;
        }
        self.nodes[node].inject(fault, random);
        if costs_vote {
            self.absent[node] = now() + WITHOUT_VOTE;
        }
        true
    }

    fn usage(&self) -> Usage {
        self.nodes.iter().map(Node::usage).sum()
    }
}
