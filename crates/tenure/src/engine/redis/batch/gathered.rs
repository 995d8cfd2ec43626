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
    /// Somebody is sending, and will look again.
    pub(super) is_sending: bool,
    /// The sending task was told that something is left.
    pub(super) is_told: bool,
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
    /// Whether a call can leave, with at most so many in flight; a full lot with a few more.
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
        let (name, script) = (item.name().clone(), item.script());
        let of_name = self.waiting.entry(name.clone()).or_default();
        of_name.push_back(Waiting { item, is_alone: false });
        if of_name.len() == 1 {
            self.lane(script).ready.push_back(name);
        }
    }

    /// Adds what comes before all that waits of its name.
    pub(super) fn add_first(&mut self, waiting: Waiting) {
        let (name, script) = (waiting.item.name().clone(), waiting.item.script());
        let of_name = self.waiting.entry(name.clone()).or_default();
        let before = of_name.front().map(|it| it.item.script());
        of_name.push_front(waiting);
        if let Some(before) = before {
            self.lane(before).ready.retain(|it| *it != name);
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
        let id = self
            .flights
            .depart(batch.iter().filter(|item| !item.is_acquire()).map(|item| item.name()));
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
            batch.push(waiting.item);
        }
        match of_name.front() {
            Some(next) => {
                let (next, is_first) = (next.item.script(), next.is_alone);
                let ready = &mut self.lane(next).ready;
                if is_first {
                    ready.push_front(name)
                } else {
                    ready.push_back(name)
                }
                is_complete |= is_first;
            }
            None => drop(self.waiting.remove(&name)),
        }
        is_complete
    }
}
