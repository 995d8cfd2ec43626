//! A further entry of an owner that holds the lock, which this client counts itself.

use std::sync::Arc;

use super::Quorum;
use super::attempt::answer_cancelled;
use super::holds::Leaving;
use crate::clock;
use crate::engine::{AcquireRequest, Acquired, Answer, Grant, Renewal, Renewed, Wakeup};
use crate::error::StoreError;

impl Quorum {
    /// Enters a hold of this client again, if it has one of this owner: a majority confirms that it is still held. None if the
    /// nodes must be asked for it.
    pub(super) fn reenter(self: &Arc<Self>, request: &AcquireRequest) -> Option<Answer<Acquired>> {
        // Counted first, so that a release of the other entries does not end the hold meanwhile.
        let fence = self.holds.enter(request)?;
        let AcquireRequest { name, entry, lease, .. } = request.clone();
        let at = clock::now();
        let renewed = self.renew(vec![Renewal { name: name.clone(), entry, lease, commit: None }]);
        let (quorum, request) = (self.clone(), request.clone());
        Some(Answer::later(async move {
            let missing = || Err(StoreError::unknown("the renewal was not answered"));
            match renewed.await.and_then(|mut all| all.pop().unwrap_or_else(missing)) {
                // It may have been taken away since that was answered (I9).
                Ok(Renewed::Extended) if !quorum.holds.is_lost(&name, entry) => {
                    match quorum.holds.fence_of(&name, entry) {
                        // It may have been lost and granted again meanwhile, with a larger fence (I4).
                        Some(fence) => {
                            let lease = lease.duration();
                            Ok(Acquired::Granted(Grant { fence, fences: 1, lease, at }))
                        }
                        // It was given up meanwhile, or counted in a hold that was lost.
                        None => {
                            quorum.leave_counted(&name, entry);
                            Err(super::errors::cancelled())
                        }
                    }
                }
                Ok(_) => {
                    quorum.leave_counted(&name, entry);
                    // The guards that it has must not take the next grant for theirs.
                    if quorum.holds.give_up(&name, entry.owner, fence) {
                        quorum.wake(Wakeup::Lost { name, owner: entry.owner });
                    }
                    quorum.ask_nodes(request).await
                }
                Err(error) => {
                    quorum.leave_counted(&name, entry);
                    Err(error)
                }
            }
        }))
    }

    /// An entry that was counted did not become one. If it was the last, and stood for one that was released, the hold ends.
    fn leave_counted(&self, name: &crate::LockName, entry: crate::Entry) {
        if let Leaving::AtNodes(attempt) = self.holds.leave(name, entry) {
            // First: then no node gets another number any more.
            answer_cancelled(attempt.end());
            (0..self.nodes.len()).for_each(|node| self.end_at(node, &attempt));
        }
    }
}
