//! The answer of a node, as a vote.

use super::Quorum;
use super::attempt::State;
use crate::core::lease::ClockSync;
use crate::core::moment::Moment;
use crate::core::quorum::{Ack, Claim, Hold, Place};
use crate::engine::{Acquired, Grant, Renewed, Standing};
use crate::error::StoreError;

impl State {
    /// The answer to a request that was sent at this moment.
    pub(super) fn claim(
        &mut self,
        quorum: &Quorum,
        node: usize,
        sent: Moment,
        result: Result<Acquired, StoreError>,
    ) -> Claim {
        let votes = |at| quorum.note_clock(node, sent, at);
        let why = match result {
            Ok(Acquired::Granted(grant)) if votes(grant.at) => {
                let Grant { fence, fences, lease, at: stamp } = grant;
                quorum.note_fence(fence);
                return Claim::Held(Hold { fence, fences, stamp, at: sent, lease });
            }
            Ok(Acquired::Queued(standing)) if votes(standing.at) => {
                let Standing { ahead, free_in, at: store } = standing;
                return Claim::Queued(Place { ahead, free_in, sync: ClockSync { sent, store } });
            }
            Ok(Acquired::Granted(_) | Acquired::Queued(_)) => {
                StoreError::unknown("its clock was set, so it has no vote for now")
            }
            Ok(Acquired::Busy) => return Claim::Busy,
            // A node whose calendar is wrong must not raise the fences of the others.
            Ok(Acquired::Outdated { last }) if quorum.nodes[node].votes() => {
                quorum.note_fence(last);
                return Claim::Outdated { last };
            }
            Ok(Acquired::Outdated { .. }) => {
                StoreError::refused("its clock was set, so it has no vote for now")
            }
            Ok(refusal @ (Acquired::Mismatch { .. } | Acquired::Upgrade { .. })) => {
                self.refusal = Some(refusal);
                return Claim::Refused;
            }
            Ok(Acquired::Ahead { .. }) => StoreError::refused(
                "its clock is more than a minute behind the fence that this client proposes: set the clocks",
            ),
            Err(error) => {
                quorum.nodes[node].note_error(&error);
                error
            }
        };
        let is_unknown = why.is_unknown();
        self.errors[node] = Some(why);
        Claim::Silent { is_unknown }
    }
}

/// The answer of a node to a renewal, as a vote. It counts although the node's clock was set: the node holds the lock now,
/// and for the whole lease.
pub(super) fn ack(result: &Result<Renewed, StoreError>) -> Ack {
    match result {
        Ok(Renewed::Extended) => Ack::Extended,
        Ok(Renewed::NotHeld) => Ack::NotHeld,
        _ => Ack::Silent,
    }
}
