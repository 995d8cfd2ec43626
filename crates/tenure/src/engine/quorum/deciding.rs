//! What the votes of an attempt amount to.

use std::time::Duration;

use super::Quorum;
use super::attempt::{Attempt, Phase, State};
use super::effect::Effect;
use super::rest::Rest;
use crate::clock;
use crate::core::fence::Fence;
use crate::core::quorum::{Claim, Hold, Verdict};
use crate::engine::{Acquired, Grant, Standing};
use crate::error::StoreError;

/// How often a candidate that does not wait tries again after a split vote: of several that try at the same moment, one is to get the
/// lock.
const SPLIT_VOTES: u32 = 8;

/// How often a larger fence is proposed.
const PROPOSALS: u32 = 8;

impl Attempt {
    /// What the votes amount to.
    pub(super) fn decide(&self, quorum: &Quorum, state: &mut State) -> Effect {
        if matches!(state.phase, Phase::Granted | Phase::Ended) || state.commit.is_some() {
            return Effect::None;
        }
        match state.candidate.verdict(clock::now()) {
            // A node may have served it long before the others, or not have extended what its owner had there: a hold that is reported
            // with little left is lost while it is renewed for the first time.
            Verdict::Granted(hold) if self.is_movable() && self.is_short(&hold) => {
                self.start_commit(quorum, state, hold.fence)
            }
            Verdict::Granted(hold) => self.granted(state, hold),
            Verdict::Commit { fence } => self.start_commit(quorum, state, fence),
            Verdict::Open => Effect::None,
            Verdict::Queued { ahead, free_in } => self.queued(state, ahead, free_in),
            // Nodes that were given back are asked again.
            _ if state.is_regrouping || state.giving_back != 0 => Effect::None,
            Verdict::Outdated { last } => self.propose_again(quorum, state, last),
            Verdict::Split if self.is_movable() && state.delays.attempts() < SPLIT_VOTES => {
                self.give_back(state)
            }
            Verdict::Busy { is_open: true } if state.rest != Rest::Over => state.await_rest(),
            Verdict::Split | Verdict::Busy { .. } => self.fail(state, Ok(Acquired::Busy)),
            Verdict::Refused => {
                let refusal = state.refusal.clone().unwrap_or(Acquired::Busy);
                self.fail(state, Ok(refusal))
            }
            Verdict::Failed { is_unknown } => {
                let needed = state.candidate.needed();
                let error = quorum.failure_of(needed, &state.errors, is_unknown);
                self.fail(state, Err(error))
            }
        }
    }

    /// Whether less is left of a hold than a third of what a grant usually has.
    fn is_short(&self, hold: &Hold) -> bool {
        let lease = self.request.lease.duration();
        let usual = self.request.queue.map_or(lease, |queue| queue.claim.min(lease));
        hold.deadline().since(clock::now()) < usual / 3
    }

    pub(super) fn granted(&self, state: &mut State, hold: Hold) -> Effect {
        state.phase = Phase::Granted;
        let callers = std::mem::take(&mut state.callers);
        let Hold { fence, fences, at, lease, .. } = hold;
        // A caller counts from when it asked. A claim may be older, and a hold that was confirmed before it is reported is younger.
        let left = match at >= state.began {
            true => lease + at.since(state.began),
            false => hold.deadline().since(state.began),
        };
        let lease = if callers.is_empty() { lease } else { left };
        Effect::Granted { grant: Grant { fence, fences, lease, at }, callers }
    }

    fn queued(&self, state: &mut State, ahead: u32, free_in: Duration) -> Effect {
        state.phase = Phase::Waiting;
        let callers = std::mem::take(&mut state.callers);
        let standing = Standing { ahead, free_in, at: state.began };
        let has_minority = !state.candidate.minority(clock::now()).is_empty();
        let regroup = (has_minority && self.is_movable() && !state.is_regrouping).then(|| {
            state.is_regrouping = true;
            state.delays.next()
        });
        Effect::Queued { standing, callers, regroup }
    }

    pub(super) fn fail(&self, state: &mut State, result: Result<Acquired, StoreError>) -> Effect {
        if state.phase == Phase::Waiting {
            // The caller believes that it waits: it asks again, and gets the error then.
            return Effect::AskAgain;
        }
        state.phase = Phase::Ended;
        let nodes = 0..state.rounds.len();
        let end = nodes.filter(|node| state.candidate.is_there(*node) && !self.is_count());
        let (end, callers) = (end.collect(), std::mem::take(&mut state.callers));
        Effect::Failed { end, callers, result }
    }

    fn propose_again(&self, quorum: &Quorum, state: &mut State, last: Fence) -> Effect {
        state.proposed += 1;
        if state.proposed > PROPOSALS {
            let why = "other clients raise its fence all the time";
            return self.fail(state, Err(StoreError::refused(why)));
        }
        state.proposal = quorum.propose(Some(last));
        let is_outdated =
            |node: &usize| matches!(state.candidate.claim(*node), Claim::Outdated { .. });
        let nodes: Vec<_> = (0..state.rounds.len()).filter(is_outdated).collect();
        Effect::Send(self.send_to(quorum, state, &nodes))
    }
}
