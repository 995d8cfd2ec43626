//! Which server has a lock: the only one, or a node of a cluster.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::call::Call;
use super::cluster::Cluster;
use super::keys;
use super::link::Link;
use super::node::Node;
use super::protocol::Protocol;
use super::redirect::{self, Redirect};
use super::resp::Reply;
use super::slot;
use super::topics::{Heard, Topic};
use super::wire::Corked;
use crate::core::name::LockName;
use crate::core::shape::Kind;
use crate::error::StoreError;

/// How often a request is sent to another node, because the one that was asked does not have its lock.
pub(super) const MOST_REDIRECTS: u32 = 8;

/// The servers that have the locks.
#[derive(Clone)]
pub(super) enum Routes {
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

/// One of a node's connections.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Commands,
    Renewals,
    Confirmations,
}

impl Routes {
    /// The format of the locks.
    pub(super) fn protocol(&self) -> Protocol {
        match self {
            Self::One(node) => node.commands.protocol,
            Self::Cluster(cluster) => cluster.protocol(),
        }
    }

    /// The channel on which this client must hear that a lock is free, if it does not yet.
    pub(super) fn unheard(&self, client: &str, name: &LockName, kind: Kind) -> Option<Topic> {
        let (protocol, slot) = (self.protocol(), self.slot(name));
        let topic = || Topic::new(&protocol.channel(name, kind, client, slot));
        match self {
            // One channel of the client is for all locks.
            Self::One(_) if !protocol.is_redisson() => None,
            Self::One(node) => Some(topic()).filter(|it| !node.subscriber.topics.hears(it)),
            Self::Cluster(cluster) => Some(topic()).filter(|it| !cluster.hears(it)),
        }
    }

    /// This client waits for a message on this channel: `heard` is called once its messages arrive, or cannot.
    pub(super) fn wait_in(&self, topic: Topic, heard: Heard) {
        match self {
            Self::One(node) => node.subscriber.topics.want(topic, heard),
            Self::Cluster(cluster) => cluster.wait_in(topic, heard),
        }
    }

    /// The slot of a lock; zero for all of them, if one server has them.
    pub(super) fn slot(&self, name: &LockName) -> u16 {
        match self {
            Self::One(_) => 0,
            Self::Cluster(_) => self.protocol().slot(name),
        }
    }

    /// The slot of another key.
    pub(super) fn slot_of_key(&self, key: &str) -> u16 {
        match self {
            Self::One(_) => 0,
            Self::Cluster(_) => slot::of_key(key),
        }
    }

    /// The server that has a slot.
    ///
    /// # Errors
    /// When no node of the cluster is known to have it.
    pub(super) fn node(&self, slot: u16) -> Result<Arc<Node>, StoreError> {
        match self {
            Self::One(node) => Ok(node.clone()),
            Self::Cluster(cluster) => cluster.node(slot),
        }
    }

    /// The server with this number; without one, that of a slot.
    ///
    /// # Errors
    /// When there is no such node, or not any more.
    pub(super) fn node_numbered(
        &self,
        number: Option<u64>,
        slot: u16,
    ) -> Result<Arc<Node>, StoreError> {
        match (self, number) {
            (Self::Cluster(cluster), Some(number)) => cluster
                .numbered(number)
                .ok_or_else(|| StoreError::refused("the node has left the cluster")),
            _ => self.node(slot),
        }
    }

    /// All servers that have locks.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![node.clone()],
            Self::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// The client's id as it is stored with a lock, which is also the end of the name of its channel for that lock.
    pub(super) fn client<'a>(&self, client: &'a str, slot: u16) -> Cow<'a, str> {
        match self {
            Self::One(_) => Cow::Borrowed(client),
            Self::Cluster(_) => Cow::Owned(keys::client_in_slot(client, slot)),
        }
    }

    /// A number that is the same for the locks of one server.
    pub(super) fn number_of(&self, name: &LockName) -> u64 {
        match self {
            Self::One(_) => 0,
            Self::Cluster(cluster) => cluster.number_of(self.slot(name)).unwrap_or(0),
        }
    }

    /// The number of the node that has a slot, if one call to it may carry operations of several slots.
    pub(super) fn spread_over(&self, slot: u16) -> Option<u64> {
        match self {
            // Redisson's format has no plain case that touches one key alone.
            Self::Cluster(cluster) if !cluster.protocol().is_redisson() => cluster.number_of(slot),
            _ => None,
        }
    }

    /// The fastest round trip so far; to the farthest node, in a cluster.
    pub(super) fn round_trip(&self) -> Duration {
        match self {
            Self::One(node) => node.commands.trip.fastest(),
            Self::Cluster(cluster) => cluster.round_trip(),
        }
    }

    /// How many calls for a slot may be in flight.
    pub(super) fn calls(&self, slot: u16) -> usize {
        self.node(slot).map_or(1, |node| node.commands.trip.calls())
    }

    /// How many calls to a node may be in flight.
    pub(super) fn calls_to(&self, number: u64) -> usize {
        match self {
            Self::One(node) => node.commands.trip.calls(),
            Self::Cluster(cluster) => cluster.calls_to(number),
        }
    }

    /// How many calls may be in flight so that the next one is sent at once: as many as there are servers. Later ones are
    /// gathered, and written together.
    pub(super) fn calls_at_once(&self) -> usize {
        match self {
            Self::One(_) => usize::MAX,
            Self::Cluster(cluster) => cluster.size() * 2,
        }
    }

    /// Has the connections for commands collect what is sent, until the result is dropped.
    pub(super) fn cork(&self) -> Vec<Corked> {
        match self {
            // Its calls are large.
            Self::One(_) => Vec::new(),
            Self::Cluster(cluster) => {
                cluster.nodes().iter().filter_map(|node| node.commands.cork()).collect()
            }
        }
    }

    /// Follows a redirection: returns the connection to use now, and whether the request must be announced to it.
    pub(super) fn follow(
        &self,
        slot: u16,
        redirect: &Redirect,
    ) -> Result<(Arc<Node>, bool), StoreError> {
        match self {
            Self::One(node) => Ok((node.clone(), false)),
            Self::Cluster(cluster) => cluster.follow(slot, redirect),
        }
    }

    /// Runs a script for locks of one slot, wherever that is now; returns the node as well.
    pub(super) async fn run(
        &self,
        slot: u16,
        purpose: Purpose,
        prepare: impl Fn(&Link) -> Call,
    ) -> Result<(Arc<Node>, Reply), StoreError> {
        let (mut node, mut is_asking) = (self.node(slot)?, false);
        for _ in 0..MOST_REDIRECTS {
            let link = match purpose {
                Purpose::Commands => &node.commands,
                Purpose::Renewals => &node.renewals,
                Purpose::Confirmations => {
                    let link = &node.confirmations().link;
                    // Otherwise it is not known on which connection the call was sent. If it fails, so does the call.
                    let _ = link.first_attempt().await;
                    link
                }
            };
            let reply = link.run(prepare(link), is_asking).await?;
            let redirect = redirect::read(&reply, &link.address);
            let Some(redirect) = redirect else { return Ok((node, reply)) };
            (node, is_asking) = self.follow(slot, &redirect)?;
        }
        Err(redirect::too_often())
    }
}
