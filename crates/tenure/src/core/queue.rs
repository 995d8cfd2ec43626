//! The waiters of one lock, in the order of their tickets.
//!
//! On one server, a ticket is the number of an arrival. On a node of a quorum, waiters arrive at each node in another
//! order, so they are ordered by (proposal, owner) instead, and all nodes hand over to the same one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::fence::Fence;
use super::lease::Lease;
use super::moment::Moment;
use crate::info::About;
use crate::owner::{Entry, Owner};

/// One waiter.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) entry: Entry,
    pub(crate) permits: u32,
    pub(crate) lease: Lease,
    pub(crate) claim: Duration,
    pub(crate) fences: u32,
    /// The fence that its client has proposed.
    pub(crate) proposal: Option<Fence>,
    /// Considered dead from this moment on, unless it asks again before. Every waiter has its own.
    pub(crate) alive_until: Moment,
    /// When it joined, by the calendar.
    pub(crate) since: Moment,
    pub(crate) about: Arc<About>,
    /// The client to notify when the lock is handed over.
    pub(crate) client_id: u32,
}

/// How many waiters a new one is placed before at most: each costs a step. Where the order at the nodes differs by more, their
/// heads differ, and no waiter gets a majority.
const MAX_OVERTAKEN: usize = 900;

/// First come, first served (I10), or the smallest proposal first.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    by_ticket: BTreeMap<u64, Waiter>,
    tickets: HashMap<Entry, u64>,
    last_ticket: u64,
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_ticket.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_ticket.len()
    }

    pub(crate) fn first(&self) -> Option<&Waiter> {
        self.by_ticket.first_key_value().map(|(_, waiter)| waiter)
    }

    pub(crate) fn find_mut(&mut self, entry: Entry) -> Option<&mut Waiter> {
        let ticket = self.tickets.get(&entry)?;
        self.by_ticket.get_mut(ticket)
    }

    /// How many of the last waiters a new one precedes, and is placed before. A waiter without a proposal is not
    /// overtaken.
    pub(crate) fn overtaken(&self, proposal: Option<Fence>, owner: Owner) -> usize {
        let Some(proposal) = proposal else { return 0 };
        let last = self.by_ticket.values().rev().take(MAX_OVERTAKEN);
        let is_overtaken = |waiter: &&Waiter| {
            waiter.proposal.is_some_and(|other| (proposal, owner) < (other, waiter.entry.owner))
        };
        last.take_while(is_overtaken).count()
    }

    /// Joins at the end, but before the last waiters that it precedes.
    pub(crate) fn join(&mut self, waiter: Waiter) {
        let overtaken = self.overtaken(waiter.proposal, waiter.entry.owner);
        self.push(waiter);
        let mut at = self.last_ticket;
        for _ in 0..overtaken {
            let Some((&before, _)) = self.by_ticket.range(..at).next_back() else { return };
            self.swap(before, at);
            at = before;
        }
    }

    /// Exchanges the tickets of two waiters.
    fn swap(&mut self, one: u64, other: u64) {
        for (from, to) in [(one, other), (other, one)] {
            if let Some(waiter) = self.by_ticket.get(&from) {
                self.tickets.insert(waiter.entry, to);
            }
        }
        let (first, second) = (self.by_ticket.remove(&one), self.by_ticket.remove(&other));
        self.by_ticket.extend(second.map(|waiter| (one, waiter)));
        self.by_ticket.extend(first.map(|waiter| (other, waiter)));
    }

    /// Joins at the end.
    pub(crate) fn push(&mut self, waiter: Waiter) {
        self.last_ticket += 1;
        self.tickets.insert(waiter.entry, self.last_ticket);
        self.by_ticket.insert(self.last_ticket, waiter);
    }

    pub(crate) fn remove(&mut self, entry: Entry) -> Option<Waiter> {
        let ticket = self.tickets.remove(&entry)?;
        self.by_ticket.remove(&ticket)
    }

    /// Removes all dead waiters.
    pub(crate) fn bury_dead(&mut self, now: Moment) {
        self.by_ticket.retain(|_, waiter| waiter.alive_until > now);
        self.tickets.retain(|_, ticket| self.by_ticket.contains_key(ticket));
    }

    /// Removes and returns the first waiter.
    pub(crate) fn pop(&mut self) -> Option<Waiter> {
        let (_, waiter) = self.by_ticket.pop_first()?;
        self.tickets.remove(&waiter.entry);
        Some(waiter)
    }

    /// Any waiting entry of this owner.
    pub(crate) fn entry_of(&self, owner: Owner) -> Option<Entry> {
        let mut waiting = self.by_ticket.values().map(|waiter| waiter.entry);
        waiting.find(|entry| entry.owner == owner)
    }

    /// How many waiters are ahead of an entry, counted up to `most`.
    pub(crate) fn ahead(&self, entry: Entry, most: u32) -> u32 {
        let ticket = self.tickets.get(&entry).copied().unwrap_or(u64::MAX);
        // At most `most`, which is a u32.
        self.by_ticket.range(..ticket).take(most as usize).count() as u32
    }

    #[cfg(all(feature = "local", target_os = "linux"))]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Waiter> {
        self.by_ticket.values_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.by_ticket.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(proposal: Option<u64>, owner: u128) -> Waiter {
        Waiter {
            entry: Entry { owner: Owner::from_value(owner), number: 0 },
            permits: 1,
            lease: Lease::DEFAULT,
            claim: Duration::from_secs(3),
            fences: 1,
            proposal: proposal.map(Fence::from_value),
            alive_until: Moment::NEVER,
            since: Moment::ZERO,
            about: Arc::new(About::this_process()),
            client_id: 1,
        }
    }

    fn queue(waiters: impl IntoIterator<Item = (Option<u64>, u128)>) -> Queue {
        let mut queue = Queue::default();
        waiters.into_iter().for_each(|(proposal, owner)| queue.join(waiter(proposal, owner)));
        queue
    }

    fn owners(queue: &Queue) -> Vec<u128> {
        queue.iter().map(|waiter| waiter.entry.owner.value()).collect()
    }

    /// I10: every node has the same order, however late a request reaches it.
    #[test]
    fn waiters_are_ordered_by_proposal_and_owner() {
        let queue = queue([
            (Some(30), 4),
            (Some(10), 2),
            (Some(20), 3),
            (Some(10), 1 << 100),
            (Some(10), 1),
        ]);
        assert_eq!(owners(&queue), [1, 2, 1 << 100, 3, 4]);
    }

    #[test]
    fn a_waiter_without_a_proposal_neither_overtakes_nor_is_overtaken() {
        let queue = queue([(Some(30), 1), (None, 2), (Some(40), 3), (Some(20), 4), (None, 5)]);
        assert_eq!(owners(&queue), [1, 2, 4, 3, 5]);
    }

    #[test]
    fn a_waiter_is_placed_before_900_at_most() {
        let mut queue = queue((1..=906).map(|at| (Some(1_000 + u64::try_from(at).unwrap()), at)));
        let mut expected: Vec<_> = (1..=906).collect();
        expected.insert(6, 999);
        queue.join(waiter(Some(1), 999));
        assert_eq!(owners(&queue), expected);
        let entry = waiter(Some(1), 999).entry;
        assert_eq!(queue.ahead(entry, 100), 6, "the index has its ticket");
        assert!(queue.remove(entry).is_some());
        expected.remove(6);
        assert_eq!(owners(&queue), expected);
    }
}
