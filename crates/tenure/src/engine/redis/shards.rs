//! The subscriptions of one connection to channels in slots of a cluster.
//!
//! A server confirms each subscription, or refuses it, in the order in which they were requested. It ends them without a
//! request when the slot moves, or the node is demoted; the connection stays.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::address::HostPort;
use super::cluster::Cluster;
use super::resp::Command;
use super::{keys, slot};
use crate::clock;
use crate::core::moment::Moment;
use crate::engine::Wakeup;
use crate::sync::lock;

/// A slot in which this client has not waited for this long is unsubscribed: a server keeps some hundred bytes for each.
const IDLE: Duration = Duration::from_secs(120);

/// Called once the wake-ups of a slot arrive, or cannot.
pub(super) type Heard = Box<dyn FnOnce() + Send>;

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

    /// The server has ended subscriptions.
    pub(super) fn unsubscribed(&self, slot: u16) {
        if let Self::Node(cluster, _) = self
            && let Some(cluster) = cluster.upgrade()
        {
            cluster.unsubscribed(slot);
        }
    }
}

/// The slots to which one connection is subscribed, or shall be.
#[derive(Default)]
pub(super) struct Shards {
    state: Mutex<State>,
    /// There are commands to send.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct State {
    slots: BTreeMap<u16, Slot>,
    /// The commands that are not answered, in order.
    requested: VecDeque<Request>,
    /// The slots to unsubscribe from.
    unwanted: BTreeSet<u16>,
    /// Subscribed again since the waiters of these slots were notified.
    confirmed: BTreeSet<u16>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Request {
    Subscribe(u16),
    Unsubscribe(u16),
}

struct Slot {
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

impl Shards {
    /// Subscribes to a slot, unless this is done; `heard` is called when it is, or cannot be.
    pub(super) fn want(&self, slot: u16, heard: Heard) {
        let mut state = lock(&self.state);
        let entry = state.entry(slot);
        entry.wanted = clock::now();
        if entry.state == Progress::Confirmed {
            drop(state);
            return heard();
        }
        entry.heard.push(heard);
        drop(state);
        self.changed.notify_one();
    }

    /// Subscribes to a slot in which this client waits already, if this is not done.
    pub(super) fn want_again(&self, slot: u16) {
        lock(&self.state).entry(slot).is_again = true;
        self.changed.notify_one();
    }

    pub(super) fn hears(&self, slot: u16) -> bool {
        let mut state = lock(&self.state);
        let found = state.slots.get_mut(&slot);
        found.is_some_and(|it| {
            it.wanted = clock::now();
            it.state == Progress::Confirmed
        })
    }

    /// The slot has moved to another node. Returns whether this client waits there.
    pub(super) fn forget(&self, slot: u16) -> bool {
        let gone = lock(&self.state).slots.remove(&slot);
        let was_wanted = gone.is_some();
        call_all(gone);
        was_wanted
    }

    /// The connection is lost, and with it all subscriptions; they are made again on the next one.
    pub(super) fn lost(&self) {
        let mut state = lock(&self.state);
        state.requested.clear();
        state.unwanted.clear();
        let mut heard = Vec::new();
        for slot in state.slots.values_mut() {
            (slot.state, slot.is_again) = (Progress::Wanted, true);
            heard.append(&mut slot.heard);
        }
        drop(state);
        heard.into_iter().for_each(|heard| heard());
    }

    /// The commands to send now, for a client with this id.
    pub(super) fn commands(&self, client: &str) -> Vec<Command> {
        let mut state = lock(&self.state);
        let State { slots, requested, unwanted, .. } = &mut *state;
        let command = |name: &str, slot: u16| {
            let client = keys::client_in_slot(client, slot);
            Command::new(name).arg(format!("{}{client}", keys::CHANNEL))
        };
        let ended = std::mem::take(unwanted);
        requested.extend(ended.iter().copied().map(Request::Unsubscribe));
        let mut commands: Vec<_> =
            ended.into_iter().map(|slot| command("SUNSUBSCRIBE", slot)).collect();
        for (number, slot) in slots.iter_mut().filter(|(_, it)| it.state == Progress::Wanted) {
            slot.state = Progress::Requested;
            requested.push_back(Request::Subscribe(*number));
            commands.push(command("SSUBSCRIBE", *number));
        }
        commands
    }

    /// The server has confirmed a subscription. Returns the slots whose waiters should ask, when there is no other
    /// request.
    pub(super) fn confirmed(&self, channel: &str) -> Option<BTreeSet<u16>> {
        let number = slot::of_key(channel);
        let mut state = lock(&self.state);
        state.answered(Request::Subscribe(number));
        let mut heard = Vec::new();
        if let Some(slot) = state.slots.get_mut(&number) {
            slot.state = Progress::Confirmed;
            heard.append(&mut slot.heard);
            if std::mem::take(&mut slot.is_again) {
                state.confirmed.insert(number);
            }
        }
        let is_last = state.requested.is_empty() && !state.confirmed.is_empty();
        let confirmed = is_last.then(|| std::mem::take(&mut state.confirmed));
        drop(state);
        heard.into_iter().for_each(|heard| heard());
        confirmed
    }

    /// The server has refused the first request that is not answered; none if there is none. Returns the slot that is
    /// not subscribed to.
    pub(super) fn refused(&self) -> Option<Option<u16>> {
        let mut state = lock(&self.state);
        let number = match state.requested.pop_front()? {
            Request::Subscribe(number) => number,
            // The slot has moved, and with it the subscription has ended.
            Request::Unsubscribe(_) => return Some(None),
        };
        let gone = state.slots.remove(&number);
        drop(state);
        call_all(gone);
        Some(Some(number))
    }

    /// A subscription has ended. Returns its slot if that was not requested.
    pub(super) fn ended(&self, channel: &str) -> Option<u16> {
        let number = slot::of_key(channel);
        let mut state = lock(&self.state);
        if state.answered(Request::Unsubscribe(number)) {
            return None;
        }
        let is_current = state.slots.get(&number)?.state == Progress::Confirmed;
        // Otherwise a new subscription is on its way.
        let gone = if is_current { state.slots.remove(&number) } else { None };
        drop(state);
        call_all(gone);
        is_current.then_some(number)
    }

    /// Unsubscribes from slots in which this client does not wait any more.
    pub(super) fn sweep(&self, now: Moment) {
        let mut state = lock(&self.state);
        let is_idle =
            |slot: &Slot| slot.state == Progress::Confirmed && now.since(slot.wanted) >= IDLE;
        let idle: Vec<_> =
            state.slots.iter().filter(|(_, it)| is_idle(it)).map(|(number, _)| *number).collect();
        for number in &idle {
            state.slots.remove(number);
            state.unwanted.insert(*number);
        }
        drop(state);
        if !idle.is_empty() {
            self.changed.notify_one();
        }
    }
}

impl State {
    /// Whether this was the first request that is not answered.
    fn answered(&mut self, request: Request) -> bool {
        let is_first = self.requested.front() == Some(&request);
        if is_first {
            self.requested.pop_front();
        }
        is_first
    }

    fn entry(&mut self, slot: u16) -> &mut Slot {
        self.slots.entry(slot).or_insert_with(|| Slot {
            state: Progress::Wanted,
            heard: Vec::new(),
            wanted: clock::now(),
            is_again: false,
        })
    }
}

/// Without the mutex: these are callbacks.
fn call_all(slot: Option<Slot>) {
    slot.into_iter().flat_map(|slot| slot.heard).for_each(|heard| heard());
}
