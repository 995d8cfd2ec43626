//! A node of the model: the rules of `core/lock.rs` for one mutex, as small values.

use super::{BEHIND, CLAIM, Fault, LONGEST, Naive, QUARANTINE, seconds};
use crate::core::fence::{Fence, Fences};

/// One attempt of a client: the owner of what it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Owner {
    pub(super) client: u8,
    pub(super) attempt: u8,
}

/// A request to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Request {
    Acquire { fence: u64, waits: bool, is_repair: bool, lease: u8 },
    Renew { commit: Option<u64> },
    Cancel,
}

/// The answer of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Answer {
    Granted {
        fence: u64,
        lease: u8,
        at: u8,
    },
    Queued {
        at: u8,
    },
    Busy,
    Outdated {
        last: u64,
    },
    Extended,
    NotHeld,
    Cancelled,
    Quarantined,
    /// A message that no request asked for, about the entry with its number.
    HandedOver {
        fence: u64,
        at: u8,
    },
}

/// An entry that the lock was handed over to, and the message for its client.
pub(super) type Woken = ((Owner, u8), Answer);

/// The state of a node. Times are seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Node {
    last: u64,
    holder: Option<Holder>,
    /// By (proposal, owner), with the number of the entry.
    queue: Vec<(u64, Owner, u8)>,
    quarantined_until: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Holder {
    owner: Owner,
    /// The numbers of its entries, one bit each.
    entries: u8,
    fence: u64,
    until: u8,
}

impl Node {
    /// It restarts, with its data or without.
    pub(super) fn restart(&mut self, fault: Fault, now: u8, naive: Option<Naive>) {
        if fault == Fault::DataLoss {
            let votes_at_once = naive == Some(Naive::NoQuarantine);
            let quarantined_until = if votes_at_once { 0 } else { now + QUARANTINE };
            *self = Self { quarantined_until, ..Self::default() };
        }
    }

    /// Whether an entry holds the lock here, or waits for it.
    pub(super) fn has(&self, (owner, number): (Owner, u8)) -> bool {
        let holds = |it: Holder| it.owner == owner && it.entries & (1 << number) != 0;
        let is_waiter = |it: &(u64, Owner, u8)| (it.1, it.2) == (owner, number);
        self.holder.is_some_and(holds) || self.queue.iter().any(is_waiter)
    }

    /// Performs a request. Returns the answer, and the waiter that the lock was handed over to.
    pub(super) fn perform(
        &mut self,
        (owner, number): (Owner, u8),
        request: Request,
        now: u8,
        naive: Option<Naive>,
    ) -> (Answer, Option<Woken>) {
        if now < self.quarantined_until {
            return (Answer::Quarantined, None);
        }
        self.expire(now);
        if let Request::Acquire { fence, is_repair: true, lease, .. } = request
            && self.holder.is_none()
            && fence >= self.last
        {
            self.dequeue((owner, number));
            return (self.grant((owner, number), fence, lease, now), None);
        }
        let before = self.hand_over(now);
        let answer = match request {
            Request::Acquire { fence, waits, lease, .. } => {
                self.acquire((owner, number), (fence, waits, lease), now, naive)
            }
            Request::Renew { commit } => self.renew(owner, commit, now),
            Request::Cancel => {
                self.dequeue((owner, number));
                if let Some(holder) = self.holder.as_mut().filter(|it| it.owner == owner) {
                    holder.entries &= !(1 << number);
                }
                self.holder.take_if(|holder| holder.entries == 0);
                Answer::Cancelled
            }
        };
        (answer, before.or_else(|| self.hand_over(now)))
    }

    fn acquire(
        &mut self,
        (owner, number): (Owner, u8),
        (fence, waits, lease): (u64, bool, u8),
        now: u8,
        naive: Option<Naive>,
    ) -> Answer {
        if let Some(holder) = self.holder.as_mut().filter(|holder| holder.owner == owner) {
            holder.entries |= 1 << number;
            holder.until = holder.until.max(now + lease);
            return Answer::Granted { fence: holder.fence, lease, at: now };
        }
        if self.has((owner, number)) {
            return Answer::Queued { at: now };
        }
        if self.holder.is_none() && self.queue.is_empty() {
            if let Some(last) = self.refuse(fence, now, naive) {
                return Answer::Outdated { last };
            }
            let counted = if naive == Some(Naive::Counters) { self.last + 1 } else { fence };
            return self.grant((owner, number), counted, lease, now);
        }
        if !waits {
            return Answer::Busy;
        }
        self.queue.push((fence, owner, number));
        self.queue.sort_unstable();
        Answer::Queued { at: now }
    }

    /// The fence that a proposal must exceed, if it does not: the last one, or, for a proposal far behind, the
    /// calendar.
    fn refuse(&self, fence: u64, now: u8, naive: Option<Naive>) -> Option<u64> {
        let calendar = seconds(now).as_micros();
        let is_old = fence <= seconds(now.saturating_sub(BEHIND)).as_micros();
        let last = match naive {
            Some(Naive::Counters) => return None,
            Some(Naive::NotStrict) => return (fence < self.last).then_some(self.last),
            Some(Naive::AnyAge) => self.last,
            _ if is_old => self.last.max(calendar),
            _ => self.last,
        };
        (fence <= last).then_some(last)
    }

    fn dequeue(&mut self, (owner, number): (Owner, u8)) {
        self.queue.retain(|it| (it.1, it.2) != (owner, number));
    }

    fn grant(&mut self, (owner, number): (Owner, u8), fence: u64, lease: u8, now: u8) -> Answer {
        self.last = self.last.max(fence);
        self.holder = Some(Holder { owner, entries: 1 << number, fence, until: now + lease });
        Answer::Granted { fence, lease, at: now }
    }

    fn renew(&mut self, owner: Owner, commit: Option<u64>, now: u8) -> Answer {
        let Some(holder) = self.holder.as_mut().filter(|holder| holder.owner == owner) else {
            return Answer::NotHeld;
        };
        holder.until = holder.until.max(now + LONGEST);
        holder.fence = holder.fence.max(commit.unwrap_or(0));
        self.last = self.last.max(commit.unwrap_or(0));
        Answer::Extended
    }

    fn expire(&mut self, now: u8) {
        self.holder.take_if(|holder| holder.until <= now);
    }

    fn hand_over(&mut self, now: u8) -> Option<Woken> {
        if self.holder.is_some() || self.queue.is_empty() {
            return None;
        }
        let (proposal, owner, number) = self.queue.remove(0);
        let mut fences = Fences::after(self.last);
        let (fence, _) = fences.reserve(1, Some(Fence::from_value(proposal)), seconds(now));
        let fence = fence.value();
        self.grant((owner, number), fence, CLAIM, now);
        Some(((owner, number), Answer::HandedOver { fence, at: now }))
    }
}
