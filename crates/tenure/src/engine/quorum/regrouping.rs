//! A candidate that has too few nodes gives them back, and asks them again: other candidates may have the others, and
//! wait for these.

use super::Quorum;
use super::attempt::{Attempt, Phase, State};
use super::effect::Effect;
use crate::clock;
use crate::core::quorum::Claim;
use crate::engine::Acquired;
use crate::error::StoreError;
use crate::sync::lock;

impl Attempt {
    /// Gives back the nodes that hold it, because they are too few.
    pub(super) fn give_back(&self, state: &mut State) -> Effect {
        let nodes = state.candidate.minority(clock::now());
        let give_back = |node: usize| {
            state.giving_back |= 1 << node;
            (node, state.take_back(self, node))
        };
        let nodes: Vec<_> = nodes.into_iter().map(give_back).collect();
        let is_asking = state.phase == Phase::Asking;
        if nodes.is_empty() {
            // What it held has ended meanwhile. No node will answer: its caller must not wait for one (I7).
            return if is_asking { self.fail(state, Ok(Acquired::Busy)) } else { Effect::None };
        }
        // Also for a waiter: where another one of its owner has the node meanwhile, it would enter again at once, and the node would
        // never be free for the candidate that has the others.
        let pause = state.delays.next();
        Effect::GiveBack { nodes, pause }
    }

    /// The time to regroup has come.
    pub(super) fn regroup(&self, quorum: &Quorum) -> Effect {
        let mut state = lock(&self.state);
        state.is_regrouping = false;
        match state.phase {
            Phase::Waiting if state.commit.is_none() => self.give_back(&mut state),
            // A verdict that has come meanwhile has waited for this moment.
            Phase::Asking => self.decide(quorum, &mut state),
            _ => Effect::None,
        }
    }

    /// A node has confirmed that it took the entry back, or has not.
    pub(super) fn gave_back(
        &self,
        quorum: &Quorum,
        node: usize,
        result: Result<(), StoreError>,
    ) -> Effect {
        let mut state = lock(&self.state);
        state.giving_back &= !(1 << node);
        if matches!(state.phase, Phase::Granted | Phase::Ended) {
            return Effect::None;
        }
        match result {
            Ok(()) => {
                let mut nodes = vec![node];
                // A waiter is in the queues of the others. One that does not wait must ask them again.
                if self.request.queue.is_none() {
                    let others = (0..quorum.nodes.len()).filter(|other| *other != node);
                    nodes.extend(others.filter(|other| state.candidate.is_refused_at(*other)));
                }
                Effect::Send(self.send_to(quorum, &mut state, &nodes))
            }
            Err(error) => {
                state.errors[node] = Some(error);
                state.candidate.answer(node, Claim::Silent { is_unknown: true });
                self.decide(quorum, &mut state)
            }
        }
    }
}
