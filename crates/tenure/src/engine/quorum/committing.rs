//! Different fences of one grant become one: the largest is stored at a majority before the grant is reported (I4).

use super::Quorum;
use super::attempt::{Attempt, Commit, Phase, State};
use super::effect::Effect;
use super::vote::ack;
use crate::clock;
use crate::core::fence::Fence;
use crate::core::moment::Moment;
use crate::core::quorum::{Ack, Confirmation, Confirmed, Hold};
use crate::engine::Renewed;
use crate::error::StoreError;
use crate::sync::lock;

impl Attempt {
    pub(super) fn start_commit(&self, quorum: &Quorum, state: &mut State, fence: Fence) -> Effect {
        let sent = clock::now();
        let confirmation = Confirmation::new(quorum.size, state.candidate.needed(), sent);
        state.commit = Some(Commit { confirmation, fence, sent });
        Effect::Commit { fence, sent }
    }

    /// A node has stored the fence, or has not.
    pub(super) fn committed(
        &self,
        quorum: &Quorum,
        (node, sent): (usize, Moment),
        result: Result<Renewed, StoreError>,
    ) -> Effect {
        let mut state = lock(&self.state);
        let ack = match ack(&result) {
            // What it extends ends early when its clock is set right.
            Ack::Extended if quorum.nodes[node].is_behind() => Ack::Silent,
            Ack::Extended if !state.candidate.is_held_now(node, clock::now()) => Ack::Partial,
            Ack::Extended => {
                state.candidate.extend(node, sent, self.request.lease.duration());
                Ack::Extended
            }
            ack => ack,
        };
        let Some(commit) = state.commit.as_mut().filter(|it| it.sent == sent) else {
            return Effect::None;
        };
        commit.confirmation.note(node, ack);
        let (fence, at) = (commit.fence, commit.sent);
        if commit.confirmation.verdict() == Confirmed::Open {
            return Effect::None;
        }
        let lease = self.request.lease.duration();
        let is_proved = commit.confirmation.proves(lease, clock::now());
        state.commit = None;
        if matches!(state.phase, Phase::Granted | Phase::Ended) {
            return Effect::None;
        }
        if !is_proved {
            let error = StoreError::unknown("its fence could not be stored at a majority");
            return self.fail(&mut state, Err(error));
        }
        self.granted(&mut state, Hold { fence, fences: 1, stamp: at, at, lease })
    }
}
