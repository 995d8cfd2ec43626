//! The operations that have not been sent, and the order in which they are.

use std::collections::{HashMap, VecDeque};

use super::super::scripts::Script;
use super::MOST;
use super::flights::{FlightId, Flights};
use super::item::{Batch, Item};
use crate::core::name::LockName;

/// This many operations make a call worth sending though others of its kind are in flight: its fixed cost is shared by
/// enough of them, and the server is not idle while this client reads replies.
const FULL_BATCH: usize = 16;

/// With full batches, this many calls of a kind may be in flight, however near the server is: one in progress, one
/// queued in the server, and one whose answer this client reads.
const CALLS_WITH_FULL_BATCHES: usize = 3;

/// The operations that have not been sent, and the calls in flight.
#[derive(Default)]
pub(super) struct Gathered {
    /// The operations that wait, by name, in order. No list is empty.
    pub(super) waiting: HashMap<LockName, VecDeque<Waiting>>,
    pub(super) lanes: Vec<Lane>,
    pub(super) flights: Flights,
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
}

/// The calls of one script.
pub(super) struct Lane {
    pub(super) script: &'static Script,
    pub(super) in_flight: usize,
    /// The next call carries the script's text.
    pub(super) sends_text: bool,
    /// Names whose first operation is of this kind, in the order in which they became ready.
    pub(super) ready: VecDeque<LockName>,
}

impl Lane {
    /// Whether a call can be sent, with at most `calls` in flight; a full batch with a few more.
    pub(super) fn can_send(&self, calls: usize) -> bool {
        let is_full = self.ready.len() >= FULL_BATCH && self.in_flight < CALLS_WITH_FULL_BATCHES;
        is_full || self.in_flight < calls && !self.ready.is_empty()
    }
}

/// A call that is about to be sent.
pub(super) struct Dispatch {
    pub(super) id: FlightId,
    pub(super) batch: Batch,
    /// It carries the script's text.
    pub(super) sends_text: bool,
}

impl Gathered {
    pub(super) fn lane(&mut self, script: &'static Script) -> &mut Lane {
        let known = self.lanes.iter().position(|lane| std::ptr::eq(lane.script, script));
        let index = known.unwrap_or_else(|| {
            let ready = VecDeque::new();
            self.lanes.push(Lane { script, in_flight: 0, sends_text: false, ready });
            self.lanes.len() - 1
        });
        &mut self.lanes[index]
    }

    pub(super) fn add(&mut self, mut item: Box<dyn Item>) {
        self.added += 1;
        item.set_number(self.added);
        let name = item.name().clone();
        let of_name = self.waiting.entry(name.clone()).or_default();
        of_name.push_back(Waiting { item, is_alone: false });
        if of_name.len() == 1 {
            self.make_ready(name);
        }
    }

    /// Makes the first waiting operation of a name ready. Returns whether it goes before all others.
    fn make_ready(&mut self, name: LockName) -> bool {
        let Some(first) = self.waiting.get(&name).and_then(VecDeque::front) else { return false };
        let (script, is_first) = (first.item.script(), first.is_alone);
        let ready = &mut self.lane(script).ready;
        if is_first {
            ready.push_front(name);
        } else {
            ready.push_back(name);
        }
        is_first
    }

    /// Adds an operation that was taken, and not performed, where it was in the order of its name.
    pub(super) fn put_back(&mut self, waiting: Waiting) {
        let (name, script) = (waiting.item.name().clone(), waiting.item.script());
        let of_name = self.waiting.entry(name.clone()).or_default();
        let number = waiting.item.number();
        let at = of_name.iter().position(|it| it.item.number() > number).unwrap_or(of_name.len());
        let before = of_name.front().map(|it| it.item.script());
        of_name.insert(at, waiting);
        if at > 0 {
            return;
        }
        // The former first operation is not ready any more.
        if let Some(before) = before {
            self.lane(before).ready.retain(|it| *it != name);
        }
        self.lane(script).ready.push_front(name);
    }

    /// Whether a release or a cancel of the same owner is in flight, or waits.
    pub(super) fn is_given_up(&self, acquire: &dyn Item) -> bool {
        let (name, owner) = (acquire.name(), acquire.owner());
        let mut waiting = self.waiting.get(name).into_iter().flatten();
        self.flights.has(name, owner)
            || waiting.any(|it| !it.item.is_acquire() && it.item.owner() == owner)
    }

    /// The server has lost its scripts: the next call of each kind carries its text, unless that was sent since.
    pub(super) fn send_texts(&mut self, is_sent: impl Fn(&'static Script) -> bool) {
        for script in super::scripts() {
            self.lane(script).sends_text |= !is_sent(script);
        }
    }

    /// Whether a call can be sent, with at most `calls` of a kind in flight.
    pub(super) fn can_send(&self, calls: usize) -> bool {
        self.lanes.iter().any(|lane| lane.can_send(calls))
    }

    /// Takes the operations of the next call; none if no call can be sent.
    pub(super) fn take(&mut self, calls: usize) -> Option<Dispatch> {
        let lane = self.lanes.iter_mut().find(|lane| lane.can_send(calls))?;
        lane.in_flight += 1;
        let (script, sends_text) = (lane.script, std::mem::take(&mut lane.sends_text));
        let mut batch = Batch::new();
        // As many names as were ready, so that a name with a long list does not have two turns.
        for _ in 0..lane.ready.len() {
            if batch.len() == MOST {
                break;
            }
            let Some(name) = self.lane(script).ready.pop_front() else { break };
            if self.take_of(name, script, &mut batch) {
                break;
            }
        }
        let id = self.flights.begin(&batch);
        Some(Dispatch { id, batch, sends_text })
    }

    /// Takes the first operations of a name, as far as they are of one kind. Returns whether the call is complete.
    pub(super) fn take_of(
        &mut self,
        name: LockName,
        script: &'static Script,
        batch: &mut Batch,
    ) -> bool {
        let Some(of_name) = self.waiting.get_mut(&name) else { return false };
        let fits = |waiting: &Waiting, batch: &Batch| {
            std::ptr::eq(waiting.item.script(), script)
                && batch.len() < MOST
                && (batch.is_empty() || !waiting.is_alone)
        };
        let mut is_complete = false;
        while !is_complete && of_name.front().is_some_and(|waiting| fits(waiting, batch)) {
            let Some(waiting) = of_name.pop_front() else { break };
            is_complete = waiting.is_alone;
            batch.push(waiting.item);
        }
        if of_name.is_empty() {
            self.waiting.remove(&name);
            return is_complete;
        }
        is_complete | self.make_ready(name)
    }
}
