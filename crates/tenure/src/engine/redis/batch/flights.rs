//! The calls in flight, in the order in which they are on the socket.
//!
//! A call that the engine has to send again comes after the calls that were sent since. That must not happen to an
//! acquire if a later call releases or cancels an entry of the same owner: the server would perform that first, and then
//! grant a lock that no client uses or releases. Such an acquire is refused instead; a caller that still waits retries.

use std::collections::{BTreeMap, HashSet};

use super::item::Item;
use crate::core::name::LockName;
use crate::owner::Owner;

/// The calls of one client that are in flight.
#[derive(Default)]
pub(super) struct Flights {
    /// How many calls were sent so far.
    sent: u64,
    /// The locks and owners of the calls that release or cancel.
    calls: BTreeMap<FlightId, Vec<(LockName, Owner)>>,
}

/// A call in flight: its number in the order of all calls.
pub(super) type FlightId = u64;

impl Flights {
    /// A call of these operations is about to be sent.
    pub(super) fn begin(&mut self, batch: &[Box<dyn Item>]) -> FlightId {
        self.sent += 1;
        let ended = batch.iter().filter(|it| !it.is_acquire());
        let ended: Vec<_> = ended.map(|it| (it.name().clone(), it.owner())).collect();
        if !ended.is_empty() {
            self.calls.insert(self.sent, ended);
        }
        self.sent
    }

    /// A call is answered, or will not be.
    pub(super) fn complete(&mut self, id: FlightId) {
        self.calls.remove(&id);
    }

    /// The locks and owners of the entries that calls after this one release or cancel.
    pub(super) fn after(&self, id: FlightId) -> HashSet<(LockName, Owner)> {
        self.calls.range(id + 1..).flat_map(|(_, ended)| ended).cloned().collect()
    }

    /// Whether a call in flight releases or cancels an entry of an owner.
    pub(super) fn has(&self, name: &LockName, owner: Owner) -> bool {
        self.calls.values().flatten().any(|it| it.1 == owner && it.0 == *name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::item::awaited;
    use super::*;
    use crate::engine::CancelRequest;
    use crate::owner::Entry;

    fn name(text: &str) -> LockName {
        text.parse().unwrap()
    }

    fn cancels(ends: &[(&LockName, Owner)]) -> Vec<Box<dyn Item>> {
        let cancel = |(name, owner): &(&LockName, Owner)| {
            let entry = Entry { owner: *owner, number: 0 };
            awaited(CancelRequest { name: (*name).clone(), entry }, 0).0
        };
        ends.iter().map(cancel).collect()
    }

    #[test]
    fn entries_that_end_after_a_call_are_known() {
        let mut flights = Flights::default();
        let (x, y, ann, bob) = (name("x"), name("y"), Owner::new(), Owner::new());
        let first = flights.begin(&[]);
        assert!(flights.after(first).is_empty());
        let second = flights.begin(&cancels(&[(&x, ann), (&y, ann)]));
        let third = flights.begin(&cancels(&[(&y, bob)]));
        let all = HashSet::from([(x.clone(), ann), (y.clone(), ann), (y.clone(), bob)]);
        assert_eq!(flights.after(first), all);
        assert_eq!(flights.after(second), HashSet::from([(y.clone(), bob)]));
        assert!(flights.after(third).is_empty());
        flights.complete(second);
        assert!(flights.has(&y, bob) && !flights.has(&y, ann) && !flights.has(&x, ann));
        flights.complete(third);
        assert!(!flights.has(&y, bob));
    }
}
