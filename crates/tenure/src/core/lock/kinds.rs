//! The differences between the kinds of lock: which requests are granted, and when.

use std::time::Duration;

use super::{LockState, Scene};
use crate::core::fence::Fence;
use crate::core::moment::Moment;
use crate::core::proposal;
use crate::core::shape::{Kind, Shape};
use crate::core::table::ClientId;
use crate::engine::{AcquireRequest, Acquired, Grant};
use crate::owner::Owner;

impl LockState {
    pub(super) fn is_mismatch(&self, shape: Shape) -> bool {
        self.kind != shape.kind() || self.limit != shape.limit() && self.kind != Kind::Semaphore
    }

    /// The latest request sets the limit of a semaphore. After a higher limit, waiters are served first;
    /// another entry of the same owner may be among them.
    pub(super) fn change_limit(
        &mut self,
        request: &AcquireRequest,
        scene: &mut Scene<'_>,
    ) -> Option<Acquired> {
        if self.limit == request.shape.limit() || !proposal::sets_limit(request) {
            return None;
        }
        self.limit = request.shape.limit();
        self.settle(&request.name, scene);
        self.enter_again(request, scene)
    }

    /// Grants at once, if the request need not wait; a proposed fence may be refused then.
    pub(super) fn enter(
        &mut self,
        request: &AcquireRequest,
        client_id: ClientId,
        scene: &mut Scene<'_>,
    ) -> Option<Acquired> {
        let (owner, permits) = (request.entry.owner, request.shape.permits());
        let grant = match self.kind {
            Kind::Latch if permits > 0 => Some(self.arrive(request, client_id, scene)),
            Kind::Latch => self
                .fits(owner, permits)
                .then(|| passage(request.lease.duration(), scene.now.clock)),
            Kind::Barrier => self.meet(request, client_id, scene),
            _ if self.fits(owner, permits) && self.is_next(request) => {
                let last = scene.fences.last();
                let refusal = proposal::refuse_outdated(request, last, scene.now.wall);
                if refusal.is_some() {
                    return refusal;
                }
                Some(self.grant_next(request, client_id, scene))
            }
            _ => None,
        };
        grant.map(Acquired::Granted)
    }

    /// Takes permits of a latch, as far as there are any, and opens it with the last one.
    fn arrive(
        &mut self,
        request: &AcquireRequest,
        client_id: ClientId,
        scene: &mut Scene<'_>,
    ) -> Grant {
        let left = self.limit.saturating_sub(self.holders.used());
        if left == 0 || self.holders.find(request.entry.owner).is_some() {
            return passage(request.lease.duration(), scene.now.clock);
        }
        let grant = self.grant_now(request, request.shape.permits().min(left), client_id, scene);
        self.settle(&request.name, scene);
        grant
    }

    /// The last party at a barrier opens it for the waiters and for itself.
    fn meet(
        &mut self,
        request: &AcquireRequest,
        client_id: ClientId,
        scene: &mut Scene<'_>,
    ) -> Option<Grant> {
        request.queue?;
        let others = self.limit as usize - 1;
        if let Some(queue) = &mut self.queue {
            queue.bury_dead(scene.now.clock);
            self.drop_empty_queue();
        }
        if self.waiting() < others {
            return None;
        }
        let stay = self.waiting() - others;
        while self.waiting() > stay {
            let waiter = self.pop()?;
            self.hand_over(&request.name, waiter, scene);
        }
        match self.enter_again(request, scene) {
            Some(Acquired::Granted(grant)) => Some(grant),
            _ => Some(self.grant_now(request, 1, client_id, scene)),
        }
    }

    /// Whether this many permits are free (I1), and the owner has no hold that lingers. A waiter for more
    /// permits than a limit that was lowered since must be the only holder.
    pub(super) fn fits(&self, owner: Owner, permits: u32) -> bool {
        match self.kind {
            Kind::Latch => self.holders.used() >= self.limit,
            Kind::Barrier => false,
            _ => {
                self.holders.used() + permits <= self.limit.max(permits)
                    && self.holders.find(owner).is_none()
            }
        }
    }
}

/// The grant of an open latch: nothing is held, so there is no fence.
pub(super) fn passage(lease: Duration, at: Moment) -> Grant {
    Grant { fence: Fence::from_value(0), fences: 1, lease, at }
}
