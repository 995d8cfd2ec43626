//! The operations that have not been sent, and the order in which they are.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::super::node::Node;
use super::super::scripts::Script;
use super::MOST;
use super::flights::{FlightId, Flights};
use super::item::{Batch, Item};
use super::lane::{Lane, LaneKey, Locks};
use super::slots::{Slots, SlotsOfCall};
use super::spread::Spreading;
use crate::clock;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::owner::Owner;

/// For how long an answer counts that a slot is in transit.
const ASK_COUNTS_FOR: Duration = Duration::from_millis(100);

/// So many lanes are kept though they are idle: a cluster has one for each slot and script.
const LANES_KEPT: usize = 1024;

/// The operations that have not been sent, and the calls in flight.
#[derive(Default)]
pub(super) struct Gathered {
    /// The operations that wait, by name, in order. No list is empty.
    pub(super) waiting: HashMap<LockName, VecDeque<Waiting>>,
    lanes: HashMap<LaneKey, Lane>,
    /// The lanes with names that are ready, in the order in which they became so.
    busy_lanes: VecDeque<LaneKey>,
    pub(super) flights: Flights,
    pub(super) slots: Slots,
    pub(super) spreading: Spreading,
    /// How many calls are in flight, of all lanes.
    in_flight: usize,
    /// Acquires that are held back until their wake-ups arrive, by their numbers.
    held_back: HashMap<u64, (LockName, Owner)>,
    /// How many operations were added so far.
    added: u64,
    /// A thread is sending, and checks for more before it ends.
    pub(super) is_sending: bool,
    /// The sending task was notified, and has not run yet.
    pub(super) is_notified: bool,
}

/// An operation that has not been sent.
pub(super) struct Waiting {
    pub(super) item: Box<dyn Item>,
    /// It is sent in a call of its own.
    pub(super) is_alone: bool,
    /// It is sent to another node than that of its slot. Only if it is sent alone.
    pub(super) asks: Option<Asks>,
}

/// A node of a cluster to which a slot is in transit, and where a request is announced.
#[derive(Clone)]
pub(super) struct Asks {
    pub(super) node: Arc<Node>,
    /// When the other node has said so.
    pub(super) since: Moment,
}

impl Asks {
    /// The node, unless the slot may have arrived meanwhile, and perhaps be on its way again: a request that is announced
    /// then could make a lock at a node that has not got it.
    fn current(self) -> Option<Arc<Node>> {
        (clock::now().since(self.since) < ASK_COUNTS_FOR).then_some(self.node)
    }
}

/// A call that is about to be sent.
pub(super) struct Dispatch {
    pub(super) id: FlightId,
    pub(super) lane: LaneKey,
    pub(super) batch: Batch,
    /// It carries the script's text.
    pub(super) sends_text: bool,
    /// The node it is sent to, if its slot is in transit.
    pub(super) asks: Option<Arc<Node>>,
    /// The number of the node it is sent to otherwise; none if one server has all locks, or no node has the slot.
    pub(super) to: Option<u64>,
    pub(super) slots: SlotsOfCall,
}

impl Gathered {
    pub(super) fn lane(&mut self, key: LaneKey) -> &mut Lane {
        self.lanes.entry(key).or_default()
    }

    /// Lists the lane of a name that has become ready.
    fn list(&mut self, key: LaneKey, name: LockName, is_first: bool) {
        let ready = &mut self.lane(key).ready;
        if is_first {
            ready.push_front(name);
        } else {
            ready.push_back(name);
        }
        if ready.len() == 1 {
            self.busy_lanes.push_back(key);
        }
    }

    /// A call is no longer in flight, and what it has not done was put back.
    pub(super) fn land(&mut self, key: LaneKey, slots: SlotsOfCall) {
        self.slots.end(slots);
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.in_flight -= 1;
            let is_idle = lane.in_flight == 0 && lane.ready.is_empty() && !lane.sends_text;
            if is_idle && self.lanes.len() > LANES_KEPT {
                self.lanes.remove(&key);
            }
        }
    }

    pub(super) fn add(&mut self, mut item: Box<dyn Item>) {
        self.added += 1;
        item.set_number(self.added);
        let name = item.name().clone();
        if !item.is_acquire() && !self.held_back.is_empty() {
            let ended = item.owner();
            self.held_back.retain(|_, (of, owner)| *of != name || *owner != ended);
        }
        let of_name = self.waiting.entry(name.clone()).or_default();
        of_name.push_back(Waiting { item, is_alone: false, asks: None });
        if of_name.len() == 1 {
            self.make_ready(name);
        }
    }

    /// Makes the first waiting operation of a name ready. Returns whether it goes before all others.
    fn make_ready(&mut self, name: LockName) -> bool {
        let Some(first) = self.waiting.get(&name).and_then(VecDeque::front) else { return false };
        let (key, is_first) = (LaneKey::of(&*first.item), first.is_alone);
        self.list(key, name, is_first);
        is_first
    }

    /// Adds an operation that was taken, and not performed, where it was in the order of its name.
    pub(super) fn put_back(&mut self, waiting: Waiting) {
        let (name, key) = (waiting.item.name().clone(), LaneKey::of(&*waiting.item));
        let of_name = self.waiting.entry(name.clone()).or_default();
        let number = waiting.item.number();
        let at = of_name.iter().position(|it| it.item.number() > number).unwrap_or(of_name.len());
        let before = of_name.front().map(|it| LaneKey::of(&*it.item));
        of_name.insert(at, waiting);
        if at > 0 {
            return;
        }
        // The former first operation is not ready any more.
        if let Some(before) = before {
            let ready = &mut self.lane(before).ready;
            ready.retain(|it| *it != name);
            if ready.is_empty() {
                self.busy_lanes.retain(|it| *it != before);
            }
        }
        self.list(key, name, true);
    }

    /// Holds back an acquire that waits in a queue until its wake-ups arrive.
    pub(super) fn hold_back(&mut self, item: &dyn Item) {
        self.held_back.insert(item.number(), (item.name().clone(), item.owner()));
    }

    /// Whether an acquire that was held back may be sent again: none of its owner's entries was released or cancelled
    /// meanwhile.
    pub(super) fn is_still_held_back(&mut self, item: &dyn Item) -> bool {
        self.held_back.remove(&item.number()).is_some()
    }

    /// Whether a release or a cancel of the same owner was sent after this call, or waits.
    pub(super) fn is_given_up(&self, acquire: &dyn Item, id: FlightId) -> bool {
        let (name, owner) = (acquire.name(), acquire.owner());
        let mut waiting = self.waiting.get(name).into_iter().flatten();
        self.flights.has_ended_after(id, name, owner)
            || waiting.any(|it| !it.item.is_acquire() && it.item.owner() == owner)
    }

    /// The server of a slot has lost its scripts: the next call of each kind carries its text, unless that was sent since.
    pub(super) fn send_texts(&mut self, slot: u16, is_sent: impl Fn(&'static Script) -> bool) {
        for script in super::scripts() {
            self.lane(LaneKey::new(script, slot)).sends_text |= !is_sent(script);
        }
    }

    /// Whether operations are ready to be sent.
    pub(super) fn is_more(&self) -> bool {
        !self.busy_lanes.is_empty()
    }

    /// How many calls are in flight, of all kinds.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether a call can be sent, with at most so many for these locks in flight.
    pub(super) fn can_send(&self, calls: &impl Fn(Locks) -> usize) -> bool {
        self.busy_lanes.iter().any(|key| self.can_send_of(key, calls))
    }

    fn can_send_of(&self, key: &LaneKey, calls: &impl Fn(Locks) -> usize) -> bool {
        let may_send = match key.locks {
            Locks::Of(slot) => self.slots.may_send(slot, None),
            // Each of its slots is checked when it is taken.
            Locks::On(_) => true,
        };
        may_send && self.lanes[key].can_send(calls(key.locks))
    }

    /// Takes the operations of the next call; none if no call can be sent.
    pub(super) fn take(&mut self, calls: &impl Fn(Locks) -> usize) -> Option<Dispatch> {
        loop {
            let mut busy = self.busy_lanes.iter();
            let at = busy.position(|key| self.can_send_of(key, calls))?;
            let key = self.busy_lanes.remove(at)?;
            let dispatch = self.take_lane(key);
            // All of its locks may have to wait.
            if dispatch.is_some() {
                return dispatch;
            }
        }
    }

    /// Takes the next call of a lane; none if all its locks have to wait for earlier operations.
    fn take_lane(&mut self, key: LaneKey) -> Option<Dispatch> {
        let lane = self.lane(key);
        let (mut batch, mut asks) = (Batch::new(), None);
        // As many names as were ready, so that a name with a long list does not have two turns.
        let ready = std::mem::take(&mut lane.ready);
        let mut ready = ready.into_iter();
        while batch.len() < MOST
            && let Some(name) = ready.next()
        {
            if self.take_of(name, key, &mut batch, &mut asks) {
                break;
            }
        }
        self.list_again(key, ready);
        let slot = batch.first()?.slot();
        self.in_flight += 1;
        let lane = self.lane(key);
        lane.in_flight += 1;
        let sends_text = std::mem::take(&mut lane.sends_text);
        let to = match key.locks {
            Locks::Of(_) => self.slots.owner(slot),
            Locks::On(number) => Some(number),
        };
        let id = self.flights.begin(&batch);
        // What is sent to another node alone comes behind what that node was sent before.
        let slots = self.slots.begin(&batch, to.filter(|_| asks.is_none()));
        Some(Dispatch { id, lane: key, batch, sends_text, asks, to, slots })
    }

    /// The names that are still ready, before those that have become so meanwhile.
    fn list_again(&mut self, key: LaneKey, left: impl DoubleEndedIterator<Item = LockName>) {
        let lane = self.lane(key);
        let was_empty = lane.ready.is_empty();
        left.rev().for_each(|name| lane.ready.push_front(name));
        if was_empty && !lane.ready.is_empty() {
            self.busy_lanes.push_back(key);
        }
    }

    /// Takes the first operations of a name, as far as they are of one kind. Returns whether the call is complete.
    pub(super) fn take_of(
        &mut self,
        name: LockName,
        key: LaneKey,
        batch: &mut Batch,
        asks: &mut Option<Arc<Node>>,
    ) -> bool {
        let Some(of_name) = self.waiting.get_mut(&name) else { return false };
        if let (Locks::On(number), Some(first)) = (key.locks, of_name.front_mut())
            && !self.slots.may_send(first.item.slot(), Some(number))
        {
            // It is sent to its slot, when the calls for that slot are answered.
            first.item.set_node(None);
            self.make_ready(name);
            return false;
        }
        let fits = |waiting: &Waiting, batch: &Batch| {
            LaneKey::of(&*waiting.item) == key
                && batch.len() < MOST
                && (batch.is_empty() || !waiting.is_alone)
        };
        let mut is_complete = false;
        while !is_complete && of_name.front().is_some_and(|waiting| fits(waiting, batch)) {
            let Some(waiting) = of_name.pop_front() else { break };
            is_complete = waiting.is_alone;
            *asks = waiting.asks.and_then(Asks::current);
            batch.push(waiting.item);
        }
        if of_name.is_empty() {
            self.waiting.remove(&name);
            return is_complete;
        }
        is_complete | self.make_ready(name)
    }
}
