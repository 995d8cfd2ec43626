//! The calls in flight, in the order in which they are on the socket.
//!
//! A call that the engine has to send again comes behind what was sent since. That must not happen to an
//! acquire if something of its lock is released or cancelled by a later call: that would be performed first,
//! and the lock be held for nobody. Such an acquire is refused instead, and whoever still wants the
//! lock asks again.

use std::collections::{BTreeMap, HashSet};

use crate::core::name::LockName;

/// The calls of one client that are in flight.
#[derive(Default)]
pub(super) struct Flights {
    /// How many calls were sent so far.
    sent: u64,
    /// The locks of those that release or cancel.
    calls: BTreeMap<FlightId, Vec<LockName>>,
}

/// A call in flight: its place in the order of all calls.
pub(super) type FlightId = u64;

impl Flights {
    /// A call is about to be sent that releases or cancels something of these locks.
    pub(super) fn depart<'a>(&mut self, names: impl Iterator<Item = &'a LockName>) -> FlightId {
        self.sent += 1;
        let names: Vec<_> = names.cloned().collect();
        if !names.is_empty() {
            self.calls.insert(self.sent, names);
        }
        self.sent
    }

    pub(super) fn land(&mut self, id: FlightId) {
        self.calls.remove(&id);
    }

    /// The locks of which something is released or cancelled by a call after this one.
    pub(super) fn after(&self, id: FlightId) -> HashSet<LockName> {
        self.calls.range(id + 1..).flat_map(|(_, names)| names).cloned().collect()
    }

    /// Whether a call in flight releases or cancels something of a lock.
    pub(super) fn has(&self, name: &LockName) -> bool {
        self.calls.values().any(|names| names.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LockName {
        text.parse().unwrap()
    }

    #[test]
    fn what_was_sent_after_a_call_is_known() {
        let mut flights = Flights::default();
        let (x, y) = (name("x"), name("y"));
        let first = flights.depart([].into_iter());
        assert!(flights.after(first).is_empty());
        let second = flights.depart([&x, &y].into_iter());
        let third = flights.depart([&y].into_iter());
        assert_eq!(flights.after(first), HashSet::from([x.clone(), y.clone()]));
        assert_eq!(flights.after(second), HashSet::from([y.clone()]));
        assert!(flights.after(third).is_empty());
        flights.land(second);
        assert!(flights.has(&y) && !flights.has(&x));
        flights.land(third);
        assert!(!flights.has(&y));
    }
}
