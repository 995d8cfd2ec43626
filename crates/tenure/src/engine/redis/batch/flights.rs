//! The calls in flight, in the order in which they are on the socket.
//!
//! A call that the engine has to send again comes after the calls that were sent since. That must not happen to an
//! acquire if a later call releases or cancels an entry of the same owner: the server would perform that first, and then
//! grant a lock that no client uses or releases. Such an acquire is refused instead; a caller that still waits retries.
//!
//! The later call may have been answered first, by another node of a cluster, or because the answer to the earlier one is
//! still being confirmed. So what a call has ended is remembered until all calls before it are answered.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::item::Item;
use crate::core::name::LockName;
use crate::owner::Owner;

/// So many entries that answered calls have ended are remembered while an earlier call is not answered, a few megabytes.
/// Beyond it they are forgotten, and no acquire of an earlier call is sent again.
const MOST_KEPT: usize = 32 * 1024;

/// The calls of one client that are in flight.
#[derive(Default)]
pub(super) struct Flights {
    /// How many calls were sent so far.
    sent: FlightId,
    in_flight: BTreeSet<FlightId>,
    /// The locks and owners of the calls that release or cancel, while these or earlier calls are in flight.
    ended: BTreeMap<FlightId, Vec<Ended>>,
    /// How many of them are of calls that are not in flight any more.
    kept: usize,
    /// The last call of which they were forgotten though an earlier one was in flight.
    forgotten: FlightId,
}

/// A lock, and the owner whose entry was released or cancelled.
type Ended = (LockName, Owner);

/// A call in flight: its number in the order of all calls.
pub(super) type FlightId = u64;

impl Flights {
    /// A call of these operations is about to be sent.
    pub(super) fn begin(&mut self, batch: &[Box<dyn Item>]) -> FlightId {
        self.sent += 1;
        let ended = batch.iter().filter(|it| !it.is_acquire());
        let ended: Vec<_> = ended.map(|it| (it.name().clone(), it.owner())).collect();
        if !ended.is_empty() {
            self.ended.insert(self.sent, ended);
        }
        self.in_flight.insert(self.sent);
        self.sent
    }

    /// A call is answered, or will not be, and none of its operations is sent again.
    pub(super) fn complete(&mut self, id: FlightId) {
        self.in_flight.remove(&id);
        self.kept += self.ended.get(&id).map_or(0, Vec::len);
        let oldest = self.in_flight.first().copied().unwrap_or(FlightId::MAX);
        while let Some(first) = self.ended.first_entry().filter(|it| *it.key() < oldest) {
            self.kept -= first.remove().len();
        }
        if self.kept > MOST_KEPT {
            let is_kept = |id: &FlightId| self.in_flight.contains(id);
            let last = self.ended.keys().rev().find(|id| !is_kept(id));
            self.forgotten = self.forgotten.max(last.copied().unwrap_or_default());
            self.ended.retain(|id, _| is_kept(id));
            self.kept = 0;
        }
    }

    /// Which of these acquires of a call must not be sent again, because a later call has ended an entry of their owner, or
    /// may have.
    pub(super) fn ended_after<'a>(
        &self,
        id: FlightId,
        acquires: impl Iterator<Item = &'a dyn Item>,
    ) -> HashSet<Ended> {
        let acquires: HashSet<_> = acquires.map(|it| (it.name().clone(), it.owner())).collect();
        if id < self.forgotten || acquires.is_empty() {
            return acquires;
        }
        let later = self.ended.range(id + 1..).flat_map(|(_, ended)| ended);
        later.filter(|ended| acquires.contains(ended)).cloned().collect()
    }

    /// Whether a call after this one has ended an entry of an owner, or may have.
    pub(super) fn has_ended_after(&self, id: FlightId, name: &LockName, owner: Owner) -> bool {
        let mut later = self.ended.range(id + 1..).flat_map(|(_, ended)| ended);
        id < self.forgotten || later.any(|it| it.1 == owner && it.0 == *name)
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
        let second = flights.begin(&cancels(&[(&x, ann), (&y, ann)]));
        let third = flights.begin(&cancels(&[(&y, bob)]));
        let has = |flights: &Flights, after| {
            [(&x, ann), (&y, ann), (&y, bob)].map(|it| flights.has_ended_after(after, it.0, it.1))
        };
        assert_eq!(has(&flights, first), [true; 3]);
        assert_eq!(has(&flights, second), [false, false, true]);
        assert_eq!(has(&flights, third), [false; 3]);
        let acquires = cancels(&[(&x, ann), (&x, bob)]);
        let ended = flights.ended_after(first, acquires.iter().map(|it| &**it));
        assert_eq!(ended, HashSet::from([(x.clone(), ann)]));
        flights.complete(first);
        flights.complete(third);
        flights.complete(second);
        assert!(flights.ended.is_empty() && flights.kept == 0);
    }

    /// I7: an acquire was answered late, and was being confirmed, while its own cancel was answered. What the cancel had
    /// ended was forgotten with that answer; the acquire was sent again, and held a lock that no client had asked for.
    #[test]
    fn what_a_call_has_ended_is_known_until_all_earlier_calls_are_answered() {
        let mut flights = Flights::default();
        let (x, ann) = (name("x"), Owner::new());
        let first = flights.begin(&[]);
        let second = flights.begin(&cancels(&[(&x, ann)]));
        flights.complete(second);
        assert!(flights.has_ended_after(first, &x, ann));
        flights.complete(first);
        assert!(flights.ended.is_empty() && flights.kept == 0, "no longer than that");
    }

    /// A call that is never answered does not make the memory grow, and its acquires are not sent again.
    #[test]
    fn entries_beyond_a_bound_count_as_ended() {
        let mut flights = Flights::default();
        let (x, ann, bob) = (name("x"), Owner::new(), Owner::new());
        let first = flights.begin(&[]);
        for _ in 0..=MOST_KEPT {
            let call = flights.begin(&cancels(&[(&x, ann)]));
            flights.complete(call);
        }
        assert!(flights.ended.len() < 2 && flights.kept < 2);
        assert!(flights.has_ended_after(first, &x, bob), "it may have been");
        let later = flights.begin(&[]);
        assert!(!flights.has_ended_after(later, &x, bob));
    }
}
