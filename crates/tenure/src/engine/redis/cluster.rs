//! A cluster: each of its nodes is one server with connections of its own, and each slot belongs to one of them.
//!
//! - **Routing.** Which node has a slot is known from the views of several nodes ([`Members`], [`ballot`]). A node that has
//!   not got a slot redirects: that changes this slot at once, and the whole map soon, in one task, however many
//!   redirections there are.
//! - **A slot that gets another node** may have lost its last writes, and its wake-ups: its waiters ask, and its holds are
//!   renewed, at once (I7, I9).
//! - **A slot in transit** is at two nodes. A lock that is not at the first one any more, or not yet, is asked for at the
//!   second one; wake-ups that are published there reach no subscriber, so waiters poll until the slot has arrived.
//! - **Wake-ups** are published in the slot of their lock. The client subscribes to a slot when it first waits there
//!   ([`topics`](super::topics)).

mod ballot;
mod confirming;
mod members;
mod presence;
mod union;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;

pub(super) use self::members::Members;
pub(super) use self::presence::Presence;
use super::address::HostPort;
use super::node::{Node, Setup};
use super::pace::{Pace, pause, random};
use super::protocol::Protocol;
use super::redirect::Redirect;
use super::slot::SLOTS;
use super::topics::{Heard, Scope, Topic};
use crate::clock;
use crate::core::moment::Moment;
use crate::engine::{Part, Wakeup};
use crate::error::StoreError;
use crate::sync::lock;

/// How often the nodes are asked while nothing seems to have changed.
const ASK_EVERY: Duration = Duration::from_secs(30);

/// How often they are asked at most, at first and after a while: while a node is missing, another one may replace it.
const ASK_AGAIN: Duration = Duration::from_millis(100);
const MOST_ASK_AGAIN: Duration = Duration::from_secs(1);

/// How often waiters poll in a slot that is in transit, and for how long after the last redirection.
const POLL_EVERY: Duration = Duration::from_millis(250);
const POLL_FOR: Duration = Duration::from_secs(2);

/// A node without slots is forgotten after this time: calls may be in flight.
const UNUSED: Duration = Duration::from_secs(10);

/// The nodes of a cluster, and their slots.
pub(super) struct Cluster {
    this: Weak<Self>,
    members: Arc<Members>,
    setup: Setup,
    state: Mutex<State>,
    /// The nodes are to be asked now.
    outdated: Arc<Notify>,
    /// Slots have got another node.
    changed: Notify,
}

struct State {
    slots: Vec<Option<Arc<Node>>>,
    nodes: BTreeMap<HostPort, Member>,
    /// The slots whose node or subscription has changed since waiters and holders were notified.
    changed: BTreeSet<u16>,
    /// The slots to subscribe to again.
    unheard: BTreeSet<Topic>,
    /// When a lock of a slot was last at another node than its slot.
    in_transit: BTreeMap<u16, Moment>,
}

struct Member {
    node: Arc<Node>,
    unused_since: Option<Moment>,
}

impl Cluster {
    /// Asks the nodes, and connects to all that have slots.
    ///
    /// # Errors
    /// When no node answers, or none can be used.
    pub(super) async fn connect(
        members: Arc<Members>,
        setup: Setup,
    ) -> Result<Arc<Self>, StoreError> {
        let (asked, asking) = (members.clone(), setup.io.clone());
        let ended = |_| StoreError::refused("the client's I/O thread has ended");
        // On the I/O thread: this future may be polled by any executor.
        let views = asking.spawn(async move { asked.views().await }).await.map_err(ended)??;
        let cluster = Arc::new_cyclic(|this| Self {
            this: this.clone(),
            members,
            setup,
            state: Mutex::new(State::new()),
            outdated: Arc::default(),
            changed: Notify::new(),
        });
        cluster.members.confirm_with(&cluster.setup.io, &cluster.this);
        cluster.apply(&ballot::count(&views));
        let mut failed = None;
        let nodes = cluster.nodes();
        let all = nodes.len();
        let mut failures = 0;
        for node in nodes {
            if let Err(error) = node.first_attempt().await {
                failures += 1;
                failed = Some(error);
            }
        }
        match failed {
            Some(error) if failures == all => Err(error),
            None if all == 0 => {
                Err(StoreError::refused(format!("no node of {} has slots", cluster.members)))
            }
            _ => Ok(cluster),
        }
    }

    /// The node that has a slot.
    pub(super) fn node(&self, slot: u16) -> Result<Arc<Node>, StoreError> {
        let node = lock(&self.state).slots[usize::from(slot % SLOTS)].clone();
        node.ok_or_else(|| {
            self.outdated.notify_one();
            StoreError::refused(format!("no node of {} has the slot {slot}", self.members))
        })
    }

    /// The number of the node that has a slot.
    pub(super) fn number_of(&self, slot: u16) -> Option<u64> {
        lock(&self.state).slots[usize::from(slot % SLOTS)].as_ref().map(|node| node.number)
    }

    /// The node with a number.
    pub(super) fn numbered(&self, number: u64) -> Option<Arc<Node>> {
        let state = lock(&self.state);
        let member = state.nodes.values().find(|member| member.node.number == number);
        member.map(|member| member.node.clone())
    }

    /// How many calls to a node may be in flight.
    pub(super) fn calls_to(&self, number: u64) -> usize {
        self.numbered(number).map_or(1, |node| node.commands.trip.calls())
    }

    /// The nodes that have slots.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        let state = lock(&self.state);
        let used = state.nodes.values().filter(|member| member.unused_since.is_none());
        used.map(|member| member.node.clone()).collect()
    }

    /// How many nodes there are.
    pub(super) fn size(&self) -> usize {
        lock(&self.state).nodes.len()
    }

    /// How many slots the node with a number has.
    pub(super) fn slots_of(&self, number: u64) -> u32 {
        let state = lock(&self.state);
        let own = state.slots.iter().flatten().filter(|node| node.number == number);
        u32::try_from(own.count()).unwrap_or(u32::MAX)
    }

    /// How many slots have no node.
    pub(super) fn uncovered(&self) -> usize {
        lock(&self.state).slots.iter().filter(|node| node.is_none()).count()
    }

    /// The fastest round trip to the farthest node.
    pub(super) fn round_trip(&self) -> Duration {
        let state = lock(&self.state);
        let trips = state.nodes.values().map(|member| member.node.commands.trip.fastest());
        trips.max().unwrap_or_default()
    }

    /// Follows a redirection: returns the node to ask, and whether the request must be announced to it.
    pub(super) fn follow(
        &self,
        slot: u16,
        redirect: &Redirect,
    ) -> Result<(Arc<Node>, bool), StoreError> {
        let Some(at) = &redirect.at else {
            self.outdated.notify_one();
            let what = "a node of the cluster does not say which one has the slot";
            return Err(StoreError::refused(what));
        };
        let mut state = lock(&self.state);
        let node = self.node_at(&mut state, at);
        let left = if redirect.is_ask {
            state.in_transit.insert(slot, clock::now());
            None
        } else {
            state.assign(slot, &node)
        };
        drop(state);
        // Without the mutex: this calls back.
        left.iter().for_each(|node| self.leave(node, slot));
        // A slot in transit still belongs to the same node.
        if !redirect.is_ask {
            self.outdated.notify_one();
        }
        Ok((node, redirect.is_ask))
    }

    /// The format of the locks.
    pub(super) fn protocol(&self) -> Protocol {
        self.setup.protocol
    }

    /// This client waits for a message on this channel: `heard` is called once its wake-ups arrive, or cannot.
    pub(super) fn wait_in(&self, topic: Topic, heard: Heard) {
        match self.node(topic.slot) {
            Ok(node) => node.subscriber.topics.want(topic, heard),
            Err(_) => heard(),
        }
    }

    /// Whether the messages on a channel arrive.
    pub(super) fn hears(&self, topic: &Topic) -> bool {
        self.node(topic.slot).is_ok_and(|node| node.subscriber.topics.hears(topic))
    }

    /// The subscription to a channel has ended, or was refused because another node has the slot.
    pub(super) fn unsubscribed(&self, topic: &Topic) {
        let mut state = lock(&self.state);
        state.changed.insert(topic.slot);
        state.unheard.insert(topic.clone());
        drop(state);
        self.outdated.notify_one();
    }

    /// A slot has left a node: if this client waits there, it subscribes where the slot is now.
    fn leave(&self, node: &Node, slot: u16) {
        let left = node.subscriber.topics.forget(slot);
        lock(&self.state).unheard.extend(left);
    }

    /// Resolves when the slots of a node have changed, and so perhaps lost data. For one task.
    pub(super) async fn reconnected(&self) {
        self.changed.notified().await;
    }

    /// The wake-ups that are missed while a node is not connected: those of its slots.
    pub(super) fn missed_at(&self, at: &HostPort) -> Wakeup {
        let state = lock(&self.state);
        let node = state.nodes.get(at).map(|member| &member.node);
        let is_its = |slot: &u16| {
            let owner = state.slots[usize::from(*slot)].as_ref();
            owner.zip(node).is_some_and(|(owner, node)| Arc::ptr_eq(owner, node))
        };
        missed_in(self.setup.protocol, (0..SLOTS).filter(is_its).collect())
    }

    /// Keeps the map of slots current, for ever. Runs on the I/O thread.
    pub(super) async fn watch(self: Arc<Self>) {
        let mut unwell_since = None;
        loop {
            let now = clock::now();
            unwell_since = self.is_unwell().then(|| unwell_since.unwrap_or(now));
            let again = again_after(unwell_since.map(|since| now.since(since)));
            let is_poll = tokio::select! {
                () = self.outdated.notified() => false,
                () = pause(again.unwrap_or(ASK_EVERY)) => false,
                () = pause(POLL_EVERY), if self.is_in_transit() => true,
            };
            if is_poll {
                self.poll_in_transit(clock::now());
                continue;
            }
            if let Ok(views) = self.members.views().await {
                self.apply(&ballot::count(&views));
            }
            self.notify_of_changes();
            // However many redirections arrive, the nodes are asked no more often than this.
            pause(ASK_AGAIN / 2 + (ASK_AGAIN / 2).mul_f64(random())).await;
        }
    }

    /// Uses the slots as the nodes have voted. A slot that no view has keeps its node.
    fn apply(&self, owners: &ballot::Owners) {
        let mut state = lock(&self.state);
        let nodes: Vec<_> = owners.nodes.iter().map(|at| self.node_at(&mut state, at)).collect();
        let mut left = Vec::new();
        for (slot, owner) in (0u16..).zip(&owners.of_slots) {
            let node = owner.and_then(|owner| state.assign(slot, &nodes[owner]));
            left.extend(node.map(|node| (node, slot)));
        }
        let retired = state.retire(clock::now());
        drop(state);
        // Without the mutex: these call back, and the connections of a node answer their commands.
        left.iter().for_each(|(node, slot)| self.leave(node, *slot));
        drop(retired);
    }

    /// The node at an address, which is connected if it is new.
    fn node_at(&self, state: &mut State, at: &HostPort) -> Arc<Node> {
        let member = state.nodes.entry(at.clone()).or_insert_with(|| {
            let scope = Scope::Node(self.this.clone(), at.clone());
            let pace = Pace::reporting_to(self.outdated.clone());
            let node = Node::start(&self.members.address(at), &self.setup, pace, scope);
            Member { node, unused_since: None }
        });
        member.unused_since = None;
        member.node.clone()
    }

    /// Subscribes again where this client waits in slots that have changed, and has their waiters ask and their holds
    /// renewed.
    fn notify_of_changes(&self) {
        let changed = std::mem::take(&mut lock(&self.state).changed);
        if changed.is_empty() {
            return;
        }
        let unheard = std::mem::take(&mut lock(&self.state).unheard);
        for topic in unheard {
            if let Ok(node) = self.node(topic.slot) {
                node.subscriber.topics.want_again(topic);
            }
        }
        self.changed.notify_one();
        self.setup.wakeups.wake(missed_in(self.setup.protocol, changed));
    }

    /// Has the waiters of slots in transit ask: their wake-ups may be published where no client is subscribed.
    fn poll_in_transit(&self, now: Moment) {
        let mut state = lock(&self.state);
        state.in_transit.retain(|_, last| now.since(*last) < POLL_FOR);
        let slots: BTreeSet<_> = state.in_transit.keys().copied().collect();
        drop(state);
        if !slots.is_empty() {
            self.setup.wakeups.wake(missed_in(self.setup.protocol, slots));
        }
    }

    fn is_in_transit(&self) -> bool {
        !lock(&self.state).in_transit.is_empty()
    }

    /// Whether a slot has no node, or a node no connection.
    fn is_unwell(&self) -> bool {
        let is_lost = |node: &Arc<Node>| node.monitors().iter().any(|monitor| !monitor.is_up());
        self.nodes().iter().any(is_lost) || self.uncovered() > 0
    }
}

/// When to ask again, if a node has been missing for so long.
fn again_after(unwell_for: Option<Duration>) -> Option<Duration> {
    let most = (unwell_for? / 8).clamp(ASK_AGAIN, MOST_ASK_AGAIN);
    Some(most / 2 + (most / 2).mul_f64(random()))
}

/// Wake-ups for locks of these slots may have been missed.
pub(super) fn missed_in(protocol: Protocol, slots: BTreeSet<u16>) -> Wakeup {
    Wakeup::MissedIn(Part::new(move |name| slots.contains(&protocol.slot(name))))
}

impl State {
    fn new() -> Self {
        Self {
            slots: vec![None; usize::from(SLOTS)],
            nodes: BTreeMap::new(),
            changed: BTreeSet::new(),
            unheard: BTreeSet::new(),
            in_transit: BTreeMap::new(),
        }
    }

    /// A slot belongs to a node. Returns the node that had it before, if that is another one.
    fn assign(&mut self, slot: u16, node: &Arc<Node>) -> Option<Arc<Node>> {
        let before = &mut self.slots[usize::from(slot % SLOTS)];
        if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, node)) {
            return None;
        }
        self.changed.insert(slot);
        before.replace(node.clone())
    }

    /// Returns the nodes that have had no slots for some time.
    fn retire(&mut self, now: Moment) -> Vec<Member> {
        let used: BTreeSet<_> = self.slots.iter().flatten().map(Arc::as_ptr).collect();
        for member in self.nodes.values_mut() {
            let is_used = used.contains(&Arc::as_ptr(&member.node));
            member.unused_since = (!is_used).then(|| member.unused_since.unwrap_or(now));
        }
        let is_over =
            |member: &Member| member.unused_since.is_some_and(|since| now.since(since) >= UNUSED);
        let over: Vec<_> =
            self.nodes.iter().filter(|(_, it)| is_over(it)).map(|(at, _)| at.clone()).collect();
        over.iter().filter_map(|at| self.nodes.remove(at)).collect()
    }
}
