//! A lock on a node of a quorum: a hold that is repaired, and a fence that is committed.

use super::{LockState, Scene};
use crate::core::fence::Fence;
use crate::core::proposal;
use crate::core::table::ClientId;
use crate::engine::{AcquireRequest, Grant};
use crate::owner::Owner;

impl LockState {
    /// Grants a repair if the permits are free, before any waiter is served: a majority of the nodes proves that this
    /// owner is the holder, so a waiter that got the lock here would hold it at a minority. If it is not granted, it
    /// is treated like any other request.
    pub(super) fn repair(
        &mut self,
        request: &AcquireRequest,
        client_id: ClientId,
        scene: &mut Scene<'_>,
    ) -> Option<Grant> {
        proposal::repair_of(request)?;
        self.holders.expire(scene.now.clock);
        let (owner, permits) = (request.entry.owner, request.shape.permits());
        let (last, wall) = (scene.fences.last(), scene.now.wall);
        let limit = self.limit;
        if self.is_idle() {
            self.limit = request.shape.limit();
        }
        if self.is_mismatch(request.shape)
            || !self.fits(owner, permits)
            || proposal::refuse_ahead(request, wall).is_some()
            || proposal::refuse_outdated(request, last, wall).is_some()
        {
            self.limit = limit;
            return None;
        }
        self.dequeue(request.entry);
        Some(self.grant_next(request, client_id, scene))
    }

    /// Grants a request that precedes all waiters. Other entries of its owner may be among them.
    pub(super) fn grant_next(
        &mut self,
        request: &AcquireRequest,
        client_id: ClientId,
        scene: &mut Scene<'_>,
    ) -> Grant {
        let grant = self.grant_now(request, request.shape.permits(), client_id, scene);
        if self.queue.is_some() {
            if request.entry.number != 0 {
                self.grant_other_entries(&request.name, request.entry.owner, grant, scene);
            }
            self.settle(&request.name, scene);
        }
        grant
    }

    /// Whether no waiter is ahead of a new request: there is none, or all of them have larger proposals.
    pub(super) fn is_next(&self, request: &AcquireRequest) -> bool {
        let Some(queue) = &self.queue else { return true };
        let proposal = proposal::of(request).map(|it| it.fence);
        queue.overtaken(proposal, request.entry.owner) == queue.len()
    }

    /// Raises the fence of a holder, and with it the last fence.
    pub(super) fn commit(&mut self, owner: Owner, fence: Fence, scene: &mut Scene<'_>) {
        self.holders.raise_fence(owner, fence);
        scene.fences.raise(fence);
    }
}
