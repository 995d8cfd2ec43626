//! The checker's account of one lock.

use std::time::Duration;

use super::checker::{Verdict, ensure};
use super::*;
use crate::core::fence::Fence;
use crate::engine::Grant;
use crate::owner::{Entry, Owner};

/// The known state of one lock.
#[derive(Default)]
pub(super) struct Account {
    pub(super) holds: Vec<Hold>,
    pub(super) queue: Vec<Waiting>,
    /// Holds whose lease has ended since the last grant.
    pub(super) ended: Vec<Hold>,
    /// The limit, as set by the latest request.
    limit: u32,
    /// The limit before that.
    former: u32,
    /// A waiter was served that the limit before would not have let in.
    has_served_more: bool,
}

pub(super) struct Hold {
    pub(super) owner: Owner,
    pub(super) numbers: Vec<u64>,
    pub(super) permits: u32,
    pub(super) until: Moment,
    pub(super) fence: Fence,
}

pub(super) struct Waiting {
    pub(super) entry: Entry,
    pub(super) permits: u32,
    pub(super) alive_until: Moment,
    proposal: Option<Fence>,
}

impl Account {
    /// The hold of an owner that has not released it.
    pub(super) fn hold_of(&mut self, owner: Owner) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.owner == owner && !hold.numbers.is_empty())
    }

    /// Adds a grant, whose permits must have been free (I1). A waiter for more permits than a limit that was
    /// lowered since must be the only holder.
    pub(super) fn hold(&mut self, hold: Hold) -> Verdict {
        self.ended.clear();
        let room = self.limit.max(hold.permits) - hold.permits;
        self.has_served_more |= self.used() + hold.permits > self.former.max(hold.permits);
        let fits = self.used() <= room;
        self.holds.push(hold);
        ensure(fits, "I1: one holder too many")
    }

    fn used(&self) -> u32 {
        self.holds.iter().map(|hold| hold.permits).sum()
    }

    /// A request may change the limit: grants that it causes are checked against the larger one. Returns
    /// the current one.
    pub(super) fn widen(&mut self, request: &AcquireRequest) -> u32 {
        let before = self.limit;
        (self.former, self.has_served_more) = (before, false);
        self.limit = before.max(request.shape.limit());
        before
    }

    /// The limit that a request finds or sets: the latest one sets it, and so does any that finds the lock idle.
    pub(super) fn limit_for(&self, request: &AcquireRequest) -> u32 {
        let is_idle = self.holds.is_empty() && self.queue.is_empty();
        let is_new = request.proposal.is_none_or(|it| !it.is_repair && !it.is_repeated);
        if is_idle || is_new { request.shape.limit() } else { self.limit }
    }

    /// The request has not changed the limit.
    pub(super) fn keep_limit(&mut self, before: u32) {
        self.limit = before;
    }

    /// Only a request that neither holds nor waits has changed the limit. Its owner may hold since: another entry that waited was served
    /// with the new limit.
    pub(super) fn set_limit(&mut self, request: &AcquireRequest, before: u32) {
        self.limit = before;
        if self.has_served_more || self.is_new(request.entry) {
            self.limit = self.limit_for(request);
        }
    }

    pub(super) fn is_new(&mut self, entry: Entry) -> bool {
        self.hold_of(entry.owner).is_none() && self.queue.iter().all(|it| it.entry != entry)
    }

    /// A lease that has ended may still be released, as long as the lock had no other holder since.
    pub(super) fn revive(&mut self, owner: Owner) {
        if self.hold_of(owner).is_none() {
            self.holds.extend(self.ended.extract_if(.., |hold| hold.owner == owner));
        }
    }

    /// Ends an entry. Returns how many remain, or none if it was not held.
    pub(super) fn leave(&mut self, entry: Entry, linger: Duration, now: Moment) -> Option<u32> {
        let hold = self.hold_of(entry.owner)?;
        let before = hold.numbers.len();
        hold.numbers.retain(|&number| number != entry.number);
        if hold.numbers.len() == before {
            return None;
        }
        let remaining = hold.numbers.len() as u32;
        if remaining == 0 {
            hold.until = now + linger;
            self.holds.retain(|hold| hold.until > now);
        }
        Some(remaining)
    }

    /// Gives back all permits but some. Returns how many entries there are, or none if it was not held.
    pub(super) fn give_back(&mut self, entry: Entry, keep: u32) -> Option<u32> {
        let hold = self.hold_of(entry.owner).filter(|hold| hold.numbers.contains(&entry.number))?;
        if hold.numbers.len() == 1 {
            hold.permits = hold.permits.min(keep);
        }
        Some(hold.numbers.len() as u32)
    }

    pub(super) fn lose(&mut self, owner: Owner) -> Verdict {
        let before = self.holds.len();
        self.holds.retain(|hold| hold.owner != owner);
        ensure(self.holds.len() < before, "an owner lost a lock that it did not hold")
    }

    /// Whether the request could be granted with this limit, but for the waiters.
    pub(super) fn has_room(&self, request: &AcquireRequest, limit: u32) -> bool {
        let permits = request.shape.permits();
        self.used() + permits <= limit.max(permits)
            && self.holds.iter().all(|hold| hold.owner != request.entry.owner)
    }

    /// A refusal is correct only if there are waiters ahead or no free permits.
    pub(super) fn judge_refusal(&self, request: &AcquireRequest) -> Verdict {
        let ahead = match self.queue.iter().position(|waiting| waiting.entry == request.entry) {
            Some(at) => at,
            None => self.place(request),
        };
        ensure(ahead > 0 || !self.has_room(request, self.limit), "refused, though it was free")
    }

    pub(super) fn wait(&mut self, request: &AcquireRequest, alive_until: Moment) {
        let waiting = self.queue.iter_mut().find(|waiting| waiting.entry == request.entry);
        match waiting {
            Some(waiting) => waiting.alive_until = waiting.alive_until.max(alive_until),
            None => {
                let waiting = Waiting {
                    entry: request.entry,
                    permits: request.shape.permits(),
                    alive_until,
                    proposal: request.proposal.map(|it| it.fence),
                };
                self.queue.insert(self.place(request), waiting);
            }
        }
    }

    /// How many waiters are ahead of a new request: up to the last one that has no proposal, or one that is no larger.
    pub(super) fn place(&self, request: &AcquireRequest) -> usize {
        let Some(proposal) = request.proposal else { return self.queue.len() };
        let ticket = (proposal.fence, request.entry.owner);
        let is_ahead =
            |it: &Waiting| it.proposal.is_none_or(|fence| (fence, it.entry.owner) <= ticket);
        self.queue.iter().rposition(is_ahead).map_or(0, |last| last + 1)
    }

    /// Whether an entry may be told that it waits no more, because its owner holds fewer permits. It may have been dead.
    pub(super) fn is_dismissed(&mut self, entry: Entry) -> bool {
        let is_waiting = self.queue.iter().any(|waiting| waiting.entry == entry);
        self.hold_of(entry.owner).is_some() && !is_waiting || self.exceeds(entry)
    }

    /// Whether an entry waits for more permits than its owner holds.
    pub(super) fn exceeds(&mut self, entry: Entry) -> bool {
        let waits = self.queue.iter().find(|waiting| waiting.entry == entry).map(|it| it.permits);
        self.hold_of(entry.owner).zip(waits).is_some_and(|(hold, permits)| permits > hold.permits)
    }

    pub(super) fn bury_dead(&mut self, now: Moment) {
        while self.queue.first().is_some_and(|first| first.alive_until <= now) {
            self.queue.remove(0);
        }
    }
}

impl Hold {
    pub(super) fn new(entry: Entry, permits: u32, until: Moment, grant: &Grant) -> Self {
        Self { owner: entry.owner, numbers: vec![entry.number], permits, until, fence: grant.fence }
    }

    pub(super) fn enter(&mut self, number: u64) {
        if !self.numbers.contains(&number) {
            self.numbers.push(number);
        }
    }
}
