//! What is tortured: servers of one topology, and the faults that they can suffer.

mod cluster;
mod local;
mod node;
mod one;
mod quorum;
mod sentinel;

use std::time::Duration;

use clap::ValueEnum;

use crate::fault::Fault;

/// A topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// One server.
    Redis,
    /// A master with two replicas and three Sentinels.
    Sentinel,
    /// Three primaries with a replica each.
    Cluster,
    /// Five independent servers.
    Quorum,
    /// A file of this machine.
    Local,
}

/// Servers that can be harmed.
pub(crate) trait Stage {
    /// The URL for clients.
    fn url(&self) -> String;

    /// The faults of these servers.
    fn faults(&self) -> Vec<Fault>;

    /// Whether two clients may hold one lock after this fault, as the page of guarantees says.
    fn excuses(&self, fault: Fault) -> bool;

    /// Injects a fault, and returns when it is over. False if it would make everything else meaningless now, and was not
    /// injected.
    fn inject(&mut self, fault: Fault, random: &mut fastrand::Rng) -> bool;

    /// What the servers use now: connections of clients, and bytes.
    fn usage(&self) -> Usage;
}

/// What servers use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) connections: u64,
    pub(crate) bytes: u64,
}

impl std::iter::Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            connections: sum.connections + one.connections,
            bytes: sum.bytes + one.bytes,
        })
    }
}

/// Starts the servers.
pub(crate) fn start(engine: Engine, folder: &std::path::Path) -> Box<dyn Stage> {
    match engine {
        Engine::Redis => Box::new(one::One::start()),
        Engine::Sentinel => Box::new(sentinel::Group::start()),
        Engine::Cluster => Box::new(cluster::Shards::start()),
        Engine::Quorum => Box::new(quorum::Nodes::start()),
        Engine::Local => Box::new(local::Folder::new(folder)),
    }
}

/// A random time up to this one: mostly a short one, so that there are many faults, and in a fifth of all cases more than a half.
pub(crate) fn upto(random: &mut fastrand::Rng, most: Duration) -> Duration {
    most.mul_f64(random.f64().powi(3))
}
