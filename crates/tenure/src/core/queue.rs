//! The waiters of one lock, in the order of their tickets.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

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
    /// Considered dead from this moment on, unless it asks again before. Every waiter has its own.
    pub(crate) alive_until: Moment,
    /// When it joined, by the calendar.
    pub(crate) since: Moment,
    pub(crate) about: Arc<About>,
    /// The client to notify when the lock is handed over.
    pub(crate) client_id: u32,
}

/// First come, first served (I10).
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
