//! The quorum engine: independent servers, of which a majority decides (Redlock, with a fence).
//!
//! It is an engine on top of engines, one per node. Every operation goes to all nodes at once, and is decided by the
//! first majority; [`core::quorum`](crate::core::quorum) counts.
//!
//! - [`node`]: one node, and what it may still have of entries that ended.
//! - [`arrival`]: answers are counted by the thread that delivers them.
//! - [`attempt`]: one entry that wants a lock, until it is granted, refused or cancelled; [`vote`]: an answer, as a
//!   vote; [`committing`], [`regrouping`] and [`rest`]: different fences, too few nodes, and the last answers; [`effect`]: what it does next.
//! - [`acquiring`], [`renewing`], [`repairing`], [`releasing`]: the operations; [`holds`]: what this client holds, a [`record`] for each, [`keeping`] what nodes have of it, and [`reentry`] into it; [`counts`]: counts of
//!   latches that nodes have missed; [`detaching`]: one number of entry for all nodes.
//! - [`wakeups`]: hand-overs by the nodes; [`passing`]: a party of a barrier leaves the other queues.
//! - [`connecting`]: from a URL to nodes; [`admission`]: which of them may vote; [`supervising`]: looks after each;
//!   [`identity`]: what makes them one quorum, which [`marking`] writes; [`absent`]: a node without a vote.
//! - [`inspecting`]: what people ask for; [`collecting`] their answers, [`merging`] what a majority says about a lock.
//!
//! One owned thread has the timers, and the connections of all nodes.

mod absent;
mod acquiring;
mod admission;
mod arrival;
mod attempt;
mod collecting;
mod committing;
mod connecting;
mod counts;
mod deciding;
mod detached;
mod detaching;
mod effect;
mod errors;
mod holds;
mod identity;
mod inspecting;
mod keeping;
mod left;
mod marking;
mod merging;
mod node;
mod passing;
mod record;
mod reentry;
mod regrouping;
mod releasing;
mod renewing;
mod repairing;
mod rest;
mod supervising;
#[cfg(test)]
mod tests;
mod vote;
mod wakeups;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use self::absent::Absent;
use self::attempt::Attempt;
use self::counts::Counts;
use self::detached::Detached;
use self::holds::Holds;
use self::node::Node;
use self::wakeups::NodeListener;
use super::{
    AcquireRequest, Acquired, Answer, CancelRequest, Capabilities, Engine, Features, Finding,
    ForceOutcome, ForceRequest, Health, ListRequest, Listener, Reach, ReleaseOutcome,
    ReleaseRequest, Renewal, Renewed, Topology, Wakeup,
};
use crate::core::name::LockName;
use crate::core::quorum::{Proposals, Size};
use crate::error::{Error, StoreError};
use crate::info::LockInfo;
use crate::owner::Entry;
use crate::sync::lock;
use crate::{foreign, thread};

/// The lease of a hand-over until its first renewal, as with one server.
const CLAIM: Duration = Duration::from_secs(3);

/// How often nodes are reminded of entries that have ended.
const CLEAN_UP_EVERY: Duration = Duration::from_secs(1);

/// A client of a quorum of independent servers.
pub struct QuorumEngine {
    quorum: Arc<Quorum>,
    // Dropped with the engine, which ends the thread.
    _running: oneshot::Sender<()>,
}

/// What all operations share.
struct Quorum {
    size: Size,
    /// Identifies the quorum.
    id: String,
    nodes: Vec<Arc<Node>>,
    /// The longest lease: a node that lost its data or its time does not vote for as long.
    longest: Duration,
    /// Held while a node is admitted.
    admitting: Mutex<()>,
    attempts: Mutex<HashMap<(LockName, Entry), Arc<Attempt>>>,
    holds: Holds,
    counts: Arc<Counts>,
    detached: Detached,
    proposals: Mutex<Proposals>,
    listener: Mutex<Option<Weak<dyn Listener>>>,
    io: Handle,
}

impl QuorumEngine {
    /// Creates a client of engines that never lose their data: for tests. Nothing keeps a node that does from voting.
    ///
    /// # Errors
    /// If they are not 3, 5 or 7, or no thread can be started.
    #[doc(hidden)]
    pub fn over(engines: Vec<Box<dyn Engine>>, longest: Duration) -> Result<Self, Error> {
        let id = engines.iter().map(|engine| engine.place()).collect::<Vec<_>>().join(", ");
        let name = |(index, it): (usize, Box<dyn Engine>)| {
            (Arc::from(it), Arc::from(format!("node {}", index + 1)))
        };
        let nodes = engines.into_iter().enumerate().map(name).collect();
        Self::new(id, nodes, longest, thread::start_io("tenure-quorum")?)
    }

    /// Creates a client of these nodes, with a thread of its own.
    fn new(
        id: String,
        nodes: Vec<(Arc<dyn Engine>, Arc<str>)>,
        longest: Duration,
        (io, running): (Handle, oneshot::Sender<()>),
    ) -> Result<Self, Error> {
        let size = Size::new(nodes.len())?;
        let quorum = Arc::new_cyclic(|this: &Weak<Quorum>| Quorum {
            size,
            id,
            nodes: (0..size.nodes())
                .zip(nodes)
                .map(|(node, (engine, name))| {
                    Arc::new(Node::new(engine, name, NodeListener::new(this, node)))
                })
                .collect(),
            longest,
            admitting: Mutex::default(),
            attempts: Mutex::default(),
            holds: Holds::default(),
            counts: Arc::default(),
            detached: Detached::default(),
            proposals: Mutex::default(),
            listener: Mutex::default(),
            io,
        });
        let cleaned = Arc::downgrade(&quorum);
        quorum.io.spawn(thread::lasting(move || clean_up(cleaned.clone())));
        Ok(Self { quorum, _running: running })
    }
}

/// Reminds the nodes of what they may still have, and of what they have missed, until the engine is gone.
async fn clean_up(quorum: Weak<Quorum>) {
    loop {
        pause(CLEAN_UP_EVERY).await;
        let Some(quorum) = quorum.upgrade() else { return };
        quorum.nodes.iter().for_each(Node::clean_up);
        quorum.counts.deliver(&quorum.nodes);
        quorum.end_released();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "delays between attempts, on the engine's own thread"
)]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

impl Quorum {
    fn wake(&self, wakeup: Wakeup) {
        let listener = lock(&self.listener).clone();
        if let Some(listener) = listener.and_then(|listener| listener.upgrade()) {
            // It wakes tasks of foreign executors.
            foreign::call(|| listener.wake(wakeup));
        }
    }
}

impl Engine for QuorumEngine {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            engine: "quorum",
            reach: Reach::Network,
            claim: Some(CLAIM),
            has_replicas: false,
            features: Features::ALL,
        }
    }

    fn acquire(&self, request: AcquireRequest) -> Answer<Acquired> {
        self.quorum.acquire(request)
    }

    /// The number of nodes that must confirm a renewal; zero if it is asked for.
    fn server_of(&self, name: &LockName, entry: Entry) -> u64 {
        self.quorum.needed_to_renew(name, entry).map_or(0, |nodes| nodes as u64)
    }

    fn acquire_all(&self, requests: Vec<AcquireRequest>) -> Vec<Answer<Acquired>> {
        self.quorum.acquire_all(requests)
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Answer<Vec<Result<Renewed, StoreError>>> {
        self.quorum.renew(renewals)
    }

    fn release(&self, request: ReleaseRequest) -> Answer<ReleaseOutcome> {
        self.quorum.release(request)
    }

    fn cancel(&self, request: CancelRequest) -> Answer<()> {
        self.quorum.cancel(request)
    }

    fn entry_to_detach(&self, name: &LockName, entry: Entry) -> Answer<Entry> {
        self.quorum.common_entry(name, entry)
    }

    fn detach(&self, name: &LockName, entry: Entry) -> Result<(), StoreError> {
        // None of a hold that this client has by its handle alone: others of the same owner are not concerned.
        let detached = self.quorum.holds.attempts_for(name, entry).unwrap_or_default();
        // First: a message that comes as soon as it is forgotten must not end it.
        self.quorum.note_detached(&detached);
        if !self.quorum.holds.forget(name, entry) {
            self.quorum.note_kept(&detached);
            return Err(StoreError::refused(
                "on a quorum the entries of one owner are counted by its client, so that one of several cannot be detached: \
                 release the others first, and detach the guard that was acquired first",
            ));
        }
        detached.iter().for_each(|attempt| attempt.let_go());
        detached.iter().for_each(|attempt| self.quorum.watch_unsure(attempt));
        detached.iter().for_each(|attempt| self.quorum.end_question(attempt));
        detached.iter().for_each(|attempt| self.quorum.end_unnamed(attempt));
        self.quorum.nodes.iter().try_for_each(|node| node.engine().detach(name, entry))
    }

    fn inspect(&self, name: LockName) -> Answer<LockInfo> {
        self.quorum.inspect(name)
    }

    fn list(&self, request: ListRequest) -> Answer<Vec<LockInfo>> {
        self.quorum.list(request)
    }

    fn force_release(&self, request: ForceRequest) -> Answer<ForceOutcome> {
        self.quorum.force_release(request)
    }

    fn checkup(&self) -> Answer<Vec<Finding>> {
        self.quorum.checkup()
    }

    fn place(&self) -> String {
        format!("quorum {}", self.quorum.id)
    }

    fn topology(&self) -> Answer<Topology> {
        self.quorum.topology()
    }

    fn health(&self) -> Health {
        self.quorum.health()
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        *lock(&self.quorum.listener) = Some(listener);
    }

    /// That of the slowest node of the fastest majority. A node without a vote, which answers at once, is none of it.
    fn round_trip(&self) -> Duration {
        let voting = self.quorum.nodes.iter().filter(|node| node.why_absent().is_none());
        let mut trips: Vec<_> = voting.map(|node| node.engine().round_trip()).collect();
        trips.sort_unstable();
        let slowest = trips.get(self.quorum.size.majority() - 1).or(trips.last());
        slowest.copied().unwrap_or_default()
    }
}

impl Drop for QuorumEngine {
    fn drop(&mut self) {
        // Now, and not when the thread ends: other clients must not serve waiters that are gone.
        for node in &self.quorum.nodes {
            node.expel(Absent(errors::closed()));
        }
    }
}

impl fmt::Debug for QuorumEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumEngine").field("id", &self.quorum.id).finish_non_exhaustive()
    }
}
