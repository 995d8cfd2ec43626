//! One lock: its holders, its queue, and the rules of its hand-over.
//!
//! Every operation first *settles* the lock at the given time: it removes holders whose lease has ended, and
//! hands free permits over to the waiters, in order (I10). So no timer is needed to keep the state
//! correct; the next operation finds it correct.

mod kinds;
mod proposals;

use std::time::Duration;

use self::kinds::passage;
use super::fence::Fences;
use super::holders::{Entries, Holder, Holders};
use super::moment::{Moment, Now};
use super::proposal;
use super::queue::{Queue, Waiter};
use super::shape::{Kind, Shape};
use super::table::{ClientId, Effects};
use crate::engine::{
    AcquireRequest, Acquired, CancelRequest, Grant, Queueing, ReleaseOutcome, ReleaseRequest,
    Renewal, Renewed, Standing, Wakeup,
};
use crate::owner::{Entry, Owner};

/// The state of one lock.
#[derive(Debug)]
pub(crate) struct LockState {
    pub(crate) kind: Kind,
    pub(crate) limit: u32,
    pub(crate) holders: Holders,
    pub(crate) queue: Option<Box<Queue>>,
}

/// The context of an operation: the time, the source of fences, and the list of effects.
pub(crate) struct Scene<'a> {
    pub(crate) now: Now,
    pub(crate) fences: &'a mut Fences,
    pub(crate) effects: &'a mut Effects,
}

impl LockState {
    pub(crate) fn new(shape: Shape) -> Self {
        Self { kind: shape.kind(), limit: shape.limit(), holders: Holders::None, queue: None }
    }

    /// It has no holder and no waiter, and need not be stored.
    pub(crate) fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.queue.is_none()
    }

    pub(crate) fn acquire(
        &mut self,
        request: &AcquireRequest,
        client_id: ClientId,
        scene: &mut Scene<'_>,
    ) -> Acquired {
        if let Some(grant) = self.repair(request, client_id, scene) {
            return Acquired::Granted(grant);
        }
        self.settle(&request.name, scene);
        if self.is_idle() {
            *self = Self::new(request.shape);
        }
        if self.is_mismatch(request.shape) {
            return Acquired::Mismatch { kind: self.kind, limit: self.limit };
        }
        if let Some(again) = self.enter_again(request, scene) {
            return again;
        }
        if self.keep_waiting(request, scene.now.clock) {
            return Acquired::Queued(self.standing(request.entry, scene.now.clock));
        }
        if let Some(ahead) = proposal::refuse_ahead(request, scene.now.wall) {
            return ahead;
        }
        if let Some(again) = self.change_limit(request, scene) {
            return again;
        }
        if let Some(entered) = self.enter(request, client_id, scene) {
            return entered;
        }
        match request.queue {
            None => Acquired::Busy,
            Some(queueing) => {
                let waiter = waiter(request, queueing, client_id, scene.now);
                self.queue.get_or_insert_default().join(waiter);
                Acquired::Queued(self.standing(request.entry, scene.now.clock))
            }
        }
    }

    /// Extends the lease, if the entry still holds. A lease never becomes shorter, so a late renewal
    /// cannot shorten what an earlier answer promised (I2); a missing hold is never created (I3).
    pub(crate) fn renew(&mut self, renewal: &Renewal, scene: &mut Scene<'_>) -> Renewed {
        self.settle(&renewal.name, scene);
        let Entry { owner, number } = renewal.entry;
        let is_held = self.holders.find(owner).is_some_and(|holder| holder.entries.has(number));
        if !is_held || !self.extend(owner, scene.now.clock + renewal.lease.duration()) {
            return Renewed::NotHeld;
        }
        if let Some(fence) = renewal.commit {
            self.commit(owner, fence, scene);
        }
        Renewed::Extended
    }

    /// Ends one entry; after the last one the lock is handed over, or lingers. Or gives back permits.
    pub(crate) fn release(
        &mut self,
        request: &ReleaseRequest,
        scene: &mut Scene<'_>,
    ) -> ReleaseOutcome {
        // A lease that ended without waiters was granted to no other owner: its owner may still release it.
        if self.queue.is_some() {
            self.settle(&request.name, scene);
        }
        let Entry { owner, number } = request.entry;
        let Some(entries) = self.holders.entries_mut(owner) else {
            return ReleaseOutcome::NotHeld;
        };
        let is_there = if request.keep == 0 { entries.remove(number) } else { entries.has(number) };
        if !is_there {
            return ReleaseOutcome::NotHeld;
        }
        let remaining = entries.count();
        if remaining == 0 {
            self.leave(&request.name, owner, request.linger, scene);
        } else if request.keep > 0 && remaining == 1 {
            self.give_back(owner, request.keep);
        }
        self.settle(&request.name, scene);
        ReleaseOutcome::Released { remaining }
    }

    /// Leaves the queue, or gives the lock back if it was granted in the meantime.
    pub(crate) fn cancel(&mut self, request: &CancelRequest, scene: &mut Scene<'_>) {
        if self.dequeue(request.entry).is_none() {
            self.release(&ReleaseRequest::new(request.name.clone(), request.entry), scene);
        }
        self.settle(&request.name, scene);
    }

    /// Takes the lock away from all holders, or from the expected one, notifies them, and raises the fence.
    pub(crate) fn force(
        &mut self,
        name: &crate::LockName,
        expected: Option<Owner>,
        scene: &mut Scene<'_>,
    ) -> Vec<Owner> {
        self.settle(name, scene);
        let holders = self.holders.iter().map(|holder| holder.owner);
        let taken: Vec<_> =
            holders.filter(|&it| expected.is_none_or(|owner| owner == it)).collect();
        for &owner in &taken {
            if let Some(holder) = self.holders.remove(owner) {
                let lost = Wakeup::Lost { name: name.clone(), owner };
                scene.effects.push((holder.client_id, lost));
            }
        }
        if !taken.is_empty() {
            // So that a holder that misses the notification is overtaken at once, too.
            scene.fences.next(scene.now.wall);
        }
        self.settle(name, scene);
        taken
    }

    /// Settles the lock: removes ended leases, and hands free permits over.
    pub(crate) fn settle(&mut self, name: &crate::LockName, scene: &mut Scene<'_>) {
        self.holders.expire(scene.now.clock);
        while let Some(waiter) = self.next_waiter(scene.now.clock) {
            self.hand_over(name, waiter, scene);
        }
    }

    /// Removes and returns the first live waiter, if its permits are free.
    fn next_waiter(&mut self, now: Moment) -> Option<Waiter> {
        loop {
            let first = self.queue.as_ref()?.first()?;
            let (entry, permits, is_dead) = (first.entry, first.permits, first.alive_until <= now);
            if is_dead {
                self.dequeue(entry);
                continue;
            }
            return if self.fits(entry.owner, permits) { self.pop() } else { None };
        }
    }

    /// Makes a waiter the holder, and notifies only that waiter.
    fn hand_over(&mut self, name: &crate::LockName, waiter: Waiter, scene: &mut Scene<'_>) {
        let now = scene.now;
        if self.kind == Kind::Latch {
            let grant = passage(waiter.lease.duration(), now.clock);
            return self.notify(name, waiter.entry, waiter.client_id, grant, scene);
        }
        let lease = match self.kind {
            // A waiter that misses the wake-up must get the grant when it asks again, within a heartbeat.
            Kind::Barrier => waiter.lease.duration(),
            _ => waiter.claim.min(waiter.lease.duration()),
        };
        let (fence, fences) = scene.fences.reserve(waiter.fences, waiter.proposal, now.wall);
        let grant = Grant { fence, fences, lease, at: now.clock };
        let owner = waiter.entry.owner;
        self.holders.insert(Holder {
            owner,
            permits: waiter.permits,
            fences,
            fence,
            until: now.clock + lease,
            since: now.wall,
            entries: Entries::One(waiter.entry.number),
            about: waiter.about,
            client_id: waiter.client_id,
        });
        self.notify(name, waiter.entry, waiter.client_id, grant, scene);
        if waiter.entry.number != 0 {
            self.grant_other_entries(name, owner, grant, scene);
        }
    }

    /// Grants the other waiting entries of an owner that just got the lock: left in the queue, they would
    /// wait for their own owner. One that waits for more permits than the owner has got leaves the queue, too, and is notified to
    /// ask: then it is refused (I1).
    fn grant_other_entries(
        &mut self,
        name: &crate::LockName,
        owner: Owner,
        grant: Grant,
        scene: &mut Scene<'_>,
    ) {
        while let Some(entry) = self.queue.as_ref().and_then(|queue| queue.entry_of(owner)) {
            let Some(waiter) = self.dequeue(entry) else {
                return;
            };
            if self.holders.find(owner).is_some_and(|holder| holder.permits < waiter.permits) {
                let sooner = Wakeup::Sooner { name: name.clone(), entry };
                scene.effects.push((waiter.client_id, sooner));
                continue;
            }
            if let Some(entries) = self.holders.entries_mut(owner) {
                entries.add(entry.number);
            }
            self.notify(name, entry, waiter.client_id, grant, scene);
        }
    }

    fn notify(
        &self,
        name: &crate::LockName,
        entry: Entry,
        client_id: ClientId,
        grant: Grant,
        scene: &mut Scene<'_>,
    ) {
        scene.effects.push((client_id, Wakeup::Granted { name: name.clone(), entry, grant }));
    }

    /// The same owner enters again, or repeats its request for a grant that it has (I5).
    fn enter_again(&mut self, request: &AcquireRequest, scene: &mut Scene<'_>) -> Option<Acquired> {
        let Entry { owner, number } = request.entry;
        let holder = self.holders.find(owner).filter(|holder| !holder.is_lingering())?;
        // The last one to count down a latch may have got fewer permits than it requested.
        if request.shape.permits() > holder.permits && self.kind != Kind::Latch {
            return Some(Acquired::Upgrade { held: holder.permits });
        }
        let (fence, fences, now) = (holder.fence, holder.fences, scene.now.clock);
        let is_alone = holder.entries.count() == 1 && holder.entries.has(number);
        let lease = match proposal::asks_again(request) && !is_alone {
            true => whole_millis(holder.until.since(now)).min(request.lease.duration()),
            false => request.lease.duration(),
        };
        self.dequeue(request.entry);
        self.holders.entries_mut(owner)?.add(number);
        self.extend(owner, now + lease);
        Some(Acquired::Granted(Grant { fence, fences, lease, at: now }))
    }

    /// Refreshes the heartbeat of a waiter that asks again; it keeps its position. False if it does not
    /// wait.
    fn keep_waiting(&mut self, request: &AcquireRequest, now: Moment) -> bool {
        let waiter = self.queue.as_mut().and_then(|queue| queue.find_mut(request.entry));
        let Some(waiter) = waiter else { return false };
        if let Some(queueing) = request.queue {
            waiter.alive_until = waiter.alive_until.max(now + queueing.heartbeat);
        }
        true
    }

    fn grant_now(
        &mut self,
        request: &AcquireRequest,
        permits: u32,
        client_id: ClientId,
        scene: &mut Scene<'_>,
    ) -> Grant {
        let now = scene.now;
        let fence = match proposal::of(request) {
            Some(proposal) => proposal.fence,
            None => scene.fences.next(now.wall),
        };
        scene.fences.raise(fence);
        let lease = request.lease.duration();
        self.holders.insert(Holder {
            owner: request.entry.owner,
            permits,
            fences: 1,
            fence,
            until: now.clock + lease,
            since: now.wall,
            entries: Entries::One(request.entry.number),
            about: request.about.clone(),
            client_id,
        });
        Grant { fence, fences: 1, lease, at: now.clock }
    }

    fn extend(&mut self, owner: Owner, until: Moment) -> bool {
        match self.holders.find(owner) {
            Some(holder) if !holder.is_lingering() => {
                let until = until.max(holder.until);
                self.holders.set_until(owner, until);
                true
            }
            _ => false,
        }
    }

    fn give_back(&mut self, owner: Owner, keep: u32) {
        if self.holders.find(owner).is_some_and(|holder| holder.permits > keep) {
            self.holders.set_permits(owner, keep);
        }
    }

    /// The last entry has ended: the hold ends, or lingers. The first waiter, which knows of a later end, is
    /// notified to ask again.
    fn leave(
        &mut self,
        name: &crate::LockName,
        owner: Owner,
        linger: Duration,
        scene: &mut Scene<'_>,
    ) {
        if linger.is_zero() {
            self.holders.remove(owner);
            return;
        }
        let until = scene.now.clock + linger;
        let was = self.holders.find(owner).map_or(until, |holder| holder.until);
        self.holders.set_until(owner, until);
        // A latch and a barrier open when an owner arrives, not when one leaves.
        if let Some(first) = self.queue.as_ref().and_then(|queue| queue.first())
            && until < was
            && !matches!(self.kind, Kind::Latch | Kind::Barrier)
        {
            let sooner = Wakeup::Sooner { name: name.clone(), entry: first.entry };
            scene.effects.push((first.client_id, sooner));
        }
    }

    fn standing(&self, entry: Entry, now: Moment) -> Standing {
        let queue = self.queue.as_ref();
        let first = self.holders.first_deadline();
        Standing {
            ahead: queue.map_or(0, |queue| queue.ahead(entry, Standing::AHEAD_COUNTED)),
            free_in: first.map_or(Duration::ZERO, |(until, _)| until.since(now)),
            at: now,
        }
    }

    fn waiting(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.len())
    }

    fn pop(&mut self) -> Option<Waiter> {
        let waiter = self.queue.as_mut()?.pop();
        self.drop_empty_queue();
        waiter
    }

    fn dequeue(&mut self, entry: Entry) -> Option<Waiter> {
        let waiter = self.queue.as_mut()?.remove(entry);
        self.drop_empty_queue();
        waiter
    }

    fn drop_empty_queue(&mut self) {
        self.queue.take_if(|queue| queue.is_empty());
    }
}

fn whole_millis(time: Duration) -> Duration {
    Duration::from_millis(time.as_millis() as u64)
}

fn waiter(request: &AcquireRequest, queueing: Queueing, client_id: ClientId, now: Now) -> Waiter {
    Waiter {
        entry: request.entry,
        permits: request.shape.permits(),
        lease: request.lease,
        claim: queueing.claim,
        fences: queueing.fences,
        proposal: proposal::of(request).map(|it| it.fence),
        alive_until: now.clock + queueing.heartbeat,
        since: now.wall,
        about: request.about.clone(),
        client_id,
    }
}
