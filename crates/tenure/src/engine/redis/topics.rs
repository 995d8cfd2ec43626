//! The subscriptions of one connection to channels on which the waiters for some locks are notified: of a slot of a cluster,
//! or of a lock in Redisson's format.
//!
//! A server confirms each subscription, or refuses it, in the order in which they were requested. It ends them without a
//! request when the slot moves, or the node is demoted; the connection stays.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::address::HostPort;
use super::cluster::Cluster;
use super::resp::Command;
use super::slot;
use crate::clock;
use crate::core::moment::Moment;
use crate::engine::Wakeup;
use crate::sync::lock;

/// A channel on which this client has not waited for this long is unsubscribed: a server keeps some hundred bytes for each.
const IDLE: Duration = Duration::from_secs(120);

/// Called once the wake-ups of a channel arrive, or cannot.
pub(super) type Heard = Box<dyn FnOnce() + Send>;

/// A channel, and the slot of a cluster that it is in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Topic {
    pub(super) slot: u16,
    pub(super) channel: Arc<str>,
}

impl Topic {
    pub(super) fn new(channel: &str) -> Self {
        Self { slot: slot::of_key(channel), channel: channel.into() }
    }
}

/// What the messages of a connection are about.
#[derive(Clone)]
pub(super) enum Scope {
    /// All locks.
    All,
    /// Those of a cluster's node.
    Node(Weak<Cluster>, HostPort),
}

impl Scope {
    /// Messages on this connection may have been missed.
    pub(super) fn missed(&self) -> Wakeup {
        match self {
            Self::Node(cluster, at) => {
                cluster.upgrade().map_or(Wakeup::Missed, |cluster| cluster.missed_at(at))
            }
            Self::All => Wakeup::Missed,
        }
    }

    /// The server has ended a subscription.
    pub(super) fn unsubscribed(&self, topic: &Topic) {
        if let Self::Node(cluster, _) = self
            && let Some(cluster) = cluster.upgrade()
        {
            cluster.unsubscribed(topic);
        }
    }

    /// The commands with which channels are subscribed to and unsubscribed from.
    fn commands(&self) -> [&'static str; 2] {
        match self {
            Self::All => ["SUBSCRIBE", "UNSUBSCRIBE"],
            Self::Node(..) => ["SSUBSCRIBE", "SUNSUBSCRIBE"],
        }
    }
}

/// The channels to which one connection is subscribed, or shall be.
#[derive(Default)]
pub(super) struct Topics {
    state: Mutex<State>,
    /// There are commands to send.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct State {
    topics: BTreeMap<Topic, Subscribed>,
    /// The commands that are not answered, in order.
    requested: VecDeque<Request>,
    /// The channels to unsubscribe from.
    unwanted: BTreeSet<Topic>,
    /// Subscribed again since their waiters were notified.
    confirmed: BTreeSet<Topic>,
}

#[derive(Clone, PartialEq, Eq)]
enum Request {
    Subscribe(Topic),
    Unsubscribe(Topic),
}

struct Subscribed {
    state: Progress,
    heard: Vec<Heard>,
    wanted: Moment,
    /// It was subscribed before: wake-ups may have been missed since.
    is_again: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Wanted,
    Requested,
    Confirmed,
}

impl Topics {
    /// Subscribes, unless this is done; `heard` is called when it is, or cannot be.
    pub(super) fn want(&self, topic: Topic, heard: Heard) {
        let mut state = lock(&self.state);
        let entry = state.entry(topic);
        entry.wanted = clock::now();
        if entry.state == Progress::Confirmed {
            drop(state);
            return heard();
        }
        entry.heard.push(heard);
        drop(state);
        self.changed.notify_one();
    }

    /// Subscribes where this client waits already, if this is not done.
    pub(super) fn want_again(&self, topic: Topic) {
        lock(&self.state).entry(topic).is_again = true;
        self.changed.notify_one();
    }

    pub(super) fn hears(&self, topic: &Topic) -> bool {
        let mut state = lock(&self.state);
        let found = state.topics.get_mut(topic);
        found.is_some_and(|it| {
            it.wanted = clock::now();
            it.state == Progress::Confirmed
        })
    }

    /// A slot has moved to another node. Returns where this client waits in it.
    pub(super) fn forget(&self, slot: u16) -> Vec<Topic> {
        let mut state = lock(&self.state);
        let of_slot: Vec<_> =
            state.topics.keys().filter(|topic| topic.slot == slot).cloned().collect();
        let gone: Vec<_> = of_slot.iter().map(|topic| state.topics.remove(topic)).collect();
        drop(state);
        gone.into_iter().for_each(call_all);
        of_slot
    }

    /// The connection is lost, and with it all subscriptions; they are made again on the next one.
    pub(super) fn lost(&self) {
        let mut state = lock(&self.state);
        state.requested.clear();
        state.unwanted.clear();
        let mut heard = Vec::new();
        for topic in state.topics.values_mut() {
            (topic.state, topic.is_again) = (Progress::Wanted, true);
            heard.append(&mut topic.heard);
        }
        drop(state);
        heard.into_iter().for_each(|heard| heard());
    }

    /// The commands to send now.
    pub(super) fn commands(&self, scope: &Scope) -> Vec<Command> {
        let mut state = lock(&self.state);
        let State { topics, requested, unwanted, .. } = &mut *state;
        let [subscribe, unsubscribe] = scope.commands();
        let mut commands = Vec::new();
        for topic in std::mem::take(unwanted) {
            commands.push(Command::new(unsubscribe).arg(&*topic.channel));
            requested.push_back(Request::Unsubscribe(topic));
        }
        for (topic, entry) in topics.iter_mut().filter(|(_, it)| it.state == Progress::Wanted) {
            entry.state = Progress::Requested;
            requested.push_back(Request::Subscribe(topic.clone()));
            commands.push(Command::new(subscribe).arg(&*topic.channel));
        }
        commands
    }

    /// The server has confirmed a subscription. Returns the channels whose waiters should ask, when there is no other
    /// request.
    pub(super) fn confirmed(&self, channel: &str) -> Option<BTreeSet<Topic>> {
        let topic = Topic::new(channel);
        let mut state = lock(&self.state);
        state.answered(&Request::Subscribe(topic.clone()));
        let mut heard = Vec::new();
        if let Some(entry) = state.topics.get_mut(&topic) {
            entry.state = Progress::Confirmed;
            heard.append(&mut entry.heard);
            if std::mem::take(&mut entry.is_again) {
                state.confirmed.insert(topic);
            }
        }
        let is_last = state.requested.is_empty() && !state.confirmed.is_empty();
        let confirmed = is_last.then(|| std::mem::take(&mut state.confirmed));
        drop(state);
        heard.into_iter().for_each(|heard| heard());
        confirmed
    }

    /// The server has refused the first request that is not answered; none if there is none. Returns the channel that is
    /// not subscribed to.
    pub(super) fn refused(&self) -> Option<Option<Topic>> {
        let mut state = lock(&self.state);
        let topic = match state.requested.pop_front()? {
            Request::Subscribe(topic) => topic,
            // The slot has moved, and with it the subscription has ended.
            Request::Unsubscribe(_) => return Some(None),
        };
        let gone = state.topics.remove(&topic);
        drop(state);
        call_all(gone);
        Some(Some(topic))
    }

    /// A subscription has ended. Returns it if that was not requested.
    pub(super) fn ended(&self, channel: &str) -> Option<Topic> {
        let topic = Topic::new(channel);
        let mut state = lock(&self.state);
        if state.answered(&Request::Unsubscribe(topic.clone())) {
            return None;
        }
        let is_current = state.topics.get(&topic)?.state == Progress::Confirmed;
        // Otherwise a new subscription is on its way.
        let gone = if is_current { state.topics.remove(&topic) } else { None };
        drop(state);
        call_all(gone);
        is_current.then_some(topic)
    }

    /// Unsubscribes from channels on which this client does not wait any more.
    pub(super) fn sweep(&self, now: Moment) {
        let mut state = lock(&self.state);
        let is_idle =
            |it: &Subscribed| it.state == Progress::Confirmed && now.since(it.wanted) >= IDLE;
        let idle: Vec<_> =
            state.topics.iter().filter(|(_, it)| is_idle(it)).map(|(it, _)| it.clone()).collect();
        let is_changed = !idle.is_empty();
        for topic in idle {
            state.topics.remove(&topic);
            state.unwanted.insert(topic);
        }
        drop(state);
        if is_changed {
            self.changed.notify_one();
        }
    }
}

impl State {
    /// Whether this was the first request that is not answered.
    fn answered(&mut self, request: &Request) -> bool {
        let is_first = self.requested.front() == Some(request);
        if is_first {
            self.requested.pop_front();
        }
        is_first
    }

    fn entry(&mut self, topic: Topic) -> &mut Subscribed {
        self.topics.entry(topic).or_insert_with(|| Subscribed {
            state: Progress::Wanted,
            heard: Vec::new(),
            wanted: clock::now(),
            is_again: false,
        })
    }
}

/// Without the mutex: these are callbacks.
fn call_all(topic: Option<Subscribed>) {
    topic.into_iter().flat_map(|topic| topic.heard).for_each(|heard| heard());
}
