//! Repairs of nodes that do not have a hold, while a majority has just proved it.

use std::sync::Arc;

use super::Quorum;
use super::arrival::on_arrival;
use super::attempt::Attempt;
use super::left::Fate;
use crate::clock;
use crate::core::quorum::Hold;
use crate::engine::{AcquireRequest, Acquired, CancelRequest, Renewal};

impl Quorum {
    /// Gives a hold back to a node that lost it, for as long as a majority has proved it.
    pub(super) fn repair(self: &Arc<Self>, node: usize, renewal: &Renewal, lease: crate::Lease) {
        let may_end = |entry| self.nodes[node].may_end(&renewal.name, entry);
        for (attempt, request) in self.holds.repairs(&renewal.name, renewal.entry, node, may_end) {
            self.repair_with(node, attempt, AcquireRequest { lease, ..request });
        }
    }

    fn repair_with(self: &Arc<Self>, node: usize, attempt: Arc<Attempt>, request: AcquireRequest) {
        let sent = clock::now();
        attempt.note_repair(node, true);
        let answer = self.nodes[node].engine().acquire(request.clone());
        // If it was released meanwhile, or has given back permits, the node must not get them after that.
        match self.holds.permits(&attempt) {
            None if !self.is_of_hold(node, &attempt) => self.end_at(node, &attempt),
            // Nor may it have them still, by an answer that was lost: it is told again, once this is its only entry there.
            Some(keep) if keep < attempt.request.shape.permits() => {
                let (name, entry) = (request.name.clone(), request.entry);
                let until = self.over(&request);
                self.nodes[node].leave_behind_but(keep, name, entry, until, Fate::Unknown);
            }
            _ => {}
        }
        let quorum = self.clone();
        on_arrival(answer, move |result| {
            quorum.answered_late(node, &attempt, &result);
            attempt.note_repair(node, false);
            if let Ok(Acquired::Granted(grant)) = result {
                let (fence, fences, lease) = (grant.fence, grant.fences, grant.lease);
                let hold = Hold { fence, fences, stamp: grant.at, at: sent, lease };
                quorum.repaired(node, &attempt, &request, hold);
            }
        });
    }

    /// A node has the hold again; unless it was taken back there meanwhile, and is to end (I1).
    fn repaired(&self, node: usize, attempt: &Attempt, request: &AcquireRequest, hold: Hold) {
        let (name, entry) = (request.name.clone(), request.entry);
        if attempt.repaired(node, entry, hold) {
            self.holds.regain(&name, entry.owner, node);
        } else if attempt.is_let_go() {
            self.watch_entry(node, name, entry);
        } else {
            self.nodes[node].end(CancelRequest { name, entry }, self.over(request));
        }
    }
}
