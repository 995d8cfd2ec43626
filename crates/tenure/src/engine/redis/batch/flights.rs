//! The calls in flight, in the order in which they are on the socket.
//!
//! A call that the engine has to send again comes after the calls that were sent since. That must not happen to an
//! acquire if a later call releases or cancels an entry of its lock: the server would perform that first, and then
//! grant a lock that no client uses or releases. Such an acquire is refused instead; a caller that still waits retries.

use std::collections::{BTreeMap, HashSet};

use super::item::Item;
use crate::core::name::LockName;

/// The calls of one client that are in flight.
#[derive(Default)]
pub(super) struct Flights {
    /// How many calls were sent so far.
    sent: u64,
    /// The locks of the calls that release or cancel.
    calls: BTreeMap<FlightId, Vec<LockName>>,
    /// The locks that calls probably hand over.
    handed_over: BTreeMap<FlightId, Vec<LockName>>,
}

/// A call in flight: its number in the order of all calls.
pub(super) type FlightId = u64;

impl Flights {
    /// A call of these operations is about to be sent.
    pub(super) fn begin(&mut self, batch: &[Box<dyn Item>]) -> FlightId {
        self.sent += 1;
        let names = |is_wanted: fn(&dyn Item) -> bool| -> Vec<_> {
            batch.iter().filter(|it| is_wanted(&***it)).map(|it| it.name().clone()).collect()
        };
        let (ended, handed_over) = (names(|it| !it.is_acquire()), names(|it| it.hands_over()));
        if !ended.is_empty() {
            self.calls.insert(self.sent, ended);
        }
        if !handed_over.is_empty() {
            self.handed_over.insert(self.sent, handed_over);
        }
        self.sent
    }

    /// A call is answered, or will not be. Returns the locks that it probably has handed over, one for each release.
    pub(super) fn complete(&mut self, id: FlightId) -> Vec<LockName> {
        self.calls.remove(&id);
        self.handed_over.remove(&id).unwrap_or_default()
    }

    /// The locks that calls after this one release or cancel.
    pub(super) fn after(&self, id: FlightId) -> HashSet<LockName> {
        self.calls.range(id + 1..).flat_map(|(_, names)| names).cloned().collect()
    }

    /// Whether a call in flight releases or cancels an entry of a lock.
    pub(super) fn has(&self, name: &LockName) -> bool {
        self.calls.values().any(|names| names.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::super::item::settling;
    use super::*;

    fn name(text: &str) -> LockName {
        text.parse().unwrap()
    }

    fn cancels(names: &[&LockName]) -> Vec<Box<dyn Item>> {
        names.iter().map(|name| settling((*name).clone(), 0)).collect()
    }

    #[test]
    fn what_was_sent_after_a_call_is_known() {
        let mut flights = Flights::default();
        let (x, y) = (name("x"), name("y"));
        let first = flights.begin(&[]);
        assert!(flights.after(first).is_empty());
        let second = flights.begin(&cancels(&[&x, &y]));
        let third = flights.begin(&cancels(&[&y]));
        assert_eq!(flights.after(first), HashSet::from([x.clone(), y.clone()]));
        assert_eq!(flights.after(second), HashSet::from([y.clone()]));
        assert!(flights.after(third).is_empty());
        flights.complete(second);
        assert!(flights.has(&y) && !flights.has(&x));
        flights.complete(third);
        assert!(!flights.has(&y));
    }
}
