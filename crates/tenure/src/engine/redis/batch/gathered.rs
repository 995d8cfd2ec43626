//! What has not been sent, and in which order it leaves.

use std::collections::{HashMap, VecDeque};

use super::super::scripts::Script;
use super::MOST;
use super::flights::{FlightId, Flights};
use super::item::{Batch, Item};
use crate::core::name::LockName;

/// So many operations make a call worth sending though others of its kind are in flight: by then, what a call costs
/// beside its operations is shared by enough of them, and the server need not wait while this client reads replies.
const LOT: usize = 16;

/// With full lots, so many calls of a kind are in flight, however near the server is: one that it performs, one that
/// waits there, and one that is read here.
const CALLS_WITH_LOTS: usize = 3;

/// What has not been sent, and how much is in flight.
#[derive(Default)]
pub(super) struct Gathered {
    /// What waits, by name, in order. No list is empty.
    pub(super) waiting: HashMap<LockName, VecDeque<Waiting>>,
    pub(super) lanes: Vec<Lane>,
    pub(super) flights: Flights,
    /// Locks that calls in flight probably hand over.
    pub(super) handed_over: HashMap<LockName, HandedOver>,
    /// Somebody is sending, and will look again.
    pub(super) is_sending: bool,
    /// The sending task was told that something is left.
    pub(super) is_told: bool,
}

/// A lock that calls in flight probably hand over.
#[derive(Default)]
pub(super) struct HandedOver {
    in_flight: usize,
    /// The first operation that waits is an acquire, and not ready before these have landed.
    is_held_back: bool,
}

/// An operation that has not left.
pub(super) struct Waiting {
    pub(super) item: Box<dyn Item>,
    /// It leaves in a call of its own.
    pub(super) is_alone: bool,
}

/// The calls of one script.
pub(super) struct Lane {
    pub(super) script: &'static Script,
    pub(super) in_flight: usize,
    /// The next call is to tell the script's text.
    pub(super) tells: bool,
    /// Names whose first operation is of this kind, in the order in which they became so.
    pub(super) ready: VecDeque<LockName>,
}

impl Lane {
    /// Whether a call can leave, with at most so many in flight; a full lot with a few more.
    pub(super) fn can_leave(&self, calls: usize) -> bool {
        let is_lot = self.ready.len() >= LOT && self.in_flight < CALLS_WITH_LOTS;
        is_lot || self.in_flight < calls && !self.ready.is_empty()
    }
}

/// A call that is about to be sent.
pub(super) struct Departure {
    pub(super) id: FlightId,
    pub(super) batch: Batch,
    /// With the script's text.
    pub(super) tells: bool,
}

impl Gathered {
    pub(super) fn lane(&mut self, script: &'static Script) -> &mut Lane {
        let known = self.lanes.iter().position(|lane| std::ptr::eq(lane.script, script));
        let index = known.unwrap_or_else(|| {
            self.lanes.push(Lane { script, in_flight: 0, tells: false, ready: VecDeque::new() });
            self.lanes.len() - 1
        });
        &mut self.lanes[index]
    }

    pub(super) fn add(&mut self, item: Box<dyn Item>) {
        let name = item.name().clone();
        let of_name = self.waiting.entry(name.clone()).or_default();
        of_name.push_back(Waiting { item, is_alone: false });
        if of_name.len() == 1 {
            self.make_ready(name);
        }
    }

    /// The first operation that waits of a name may leave, unless it is held back. Whether it leaves before all others.
    fn make_ready(&mut self, name: LockName) -> bool {
        let Some(first) = self.waiting.get(&name).and_then(VecDeque::front) else { return false };
        if first.item.is_acquire()
            && let Some(handed_over) = self.handed_over.get_mut(&name)
        {
            handed_over.is_held_back = true;
            return false;
        }
        let (script, is_first) = (first.item.script(), first.is_alone);
        let ready = &mut self.lane(script).ready;
        if is_first {
            ready.push_front(name);
        } else {
            ready.push_back(name);
        }
        is_first
    }

    /// A call has landed: what was held back by it is ready.
    pub(super) fn land(&mut self, id: FlightId) {
        for name in self.flights.land(id) {
            let Some(handed_over) = self.handed_over.get_mut(&name) else { continue };
            handed_over.in_flight -= 1;
            if handed_over.in_flight == 0
                && self.handed_over.remove(&name).is_some_and(|it| it.is_held_back)
            {
                self.make_ready(name);
            }
        }
    }

    /// Adds what comes before all that waits of its name.
    pub(super) fn add_first(&mut self, waiting: Waiting) {
        let (name, script) = (waiting.item.name().clone(), waiting.item.script());
        let of_name = self.waiting.entry(name.clone()).or_default();
        let before = of_name.front().map(|it| it.item.script());
        of_name.push_front(waiting);
        // It is not ready any more, or was held back and is not the first any more.
        if let Some(before) = before {
            self.lane(before).ready.retain(|it| *it != name);
        }
        if let Some(handed_over) = self.handed_over.get_mut(&name) {
            handed_over.is_held_back = false;
        }
        self.lane(script).ready.push_front(name);
    }

    /// Whether something else than an acquire of this name is in flight, or waits.
    pub(super) fn is_given_up(&self, name: &LockName) -> bool {
        let waiting = self.waiting.get(name).into_iter().flatten();
        self.flights.has(name) || waiting.into_iter().any(|it| !it.item.is_acquire())
    }

    /// Whether something can leave, with at most so many calls of a kind in flight.
    pub(super) fn can_leave(&self, calls: usize) -> bool {
        self.lanes.iter().any(|lane| lane.can_leave(calls))
    }

    /// Takes what can leave in one call; none if nothing can.
    pub(super) fn take(&mut self, calls: usize) -> Option<Departure> {
        let lane = self.lanes.iter_mut().find(|lane| lane.can_leave(calls))?;
        lane.in_flight += 1;
        let (script, tells) = (lane.script, std::mem::take(&mut lane.tells));
        let mut batch = Batch::new();
        // As many names as were ready, so that one with a long list does not come twice.
        for _ in 0..lane.ready.len() {
            if batch.len() == MOST {
                break;
            }
            let Some(name) = self.lane(script).ready.pop_front() else { break };
            if self.take_of(name, script, &mut batch) {
                break;
            }
        }
        let id = self.flights.depart(&batch);
        Some(Departure { id, batch, tells })
    }

    /// Takes the first operations of a name, as far as they are of one kind. Whether the call is complete.
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
            if waiting.item.hands_over() {
                self.handed_over.entry(name.clone()).or_default().in_flight += 1;
            }
            batch.push(waiting.item);
        }
        if of_name.is_empty() {
            self.waiting.remove(&name);
            return is_complete;
        }
        is_complete | self.make_ready(name)
    }
}
