//! The answers that cannot make a majority any more.
//!
//! One of them may be a grant: then the vote is split, and tried again. If all candidates of a split vote ended before it,
//! none would get the lock. So one that does not wait awaits them for a while.

use std::time::Duration;

use super::Quorum;
use super::attempt::{Attempt, State};
use super::effect::Effect;
use crate::clock;
use crate::sync::lock;

/// How long the last answers are awaited at least, by one that does not wait and cannot get a majority any more: as long as the
/// answers before them took, but a busy machine delays an answer by some milliseconds.
const REST: Duration = Duration::from_millis(10);

/// And at most: a node that does not answer must not delay the others.
const LONGEST_REST: Duration = Duration::from_millis(100);

/// How far the rest of the answers is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// The answers before them have not decided it yet.
    Unneeded,
    /// They are awaited, after this round of requests.
    Awaited { round: u32 },
    /// They were awaited for long enough.
    Over,
}

impl State {
    /// No majority is possible any more: awaits the rest of the answers for a while.
    pub(super) fn await_rest(&mut self) -> Effect {
        let round = self.last_round;
        if self.rest == (Rest::Awaited { round }) {
            return Effect::None;
        }
        self.rest = Rest::Awaited { round };
        let delay = clock::now().since(self.began).clamp(REST, LONGEST_REST);
        Effect::AwaitRest { round, delay }
    }
}

impl Attempt {
    /// The rest of the answers was awaited for long enough.
    pub(super) fn rest_is_over(&self, quorum: &Quorum, round: u32) -> Effect {
        let mut state = lock(&self.state);
        if state.rest != (Rest::Awaited { round }) {
            return Effect::None;
        }
        state.rest = Rest::Over;
        self.decide(quorum, &mut state)
    }
}
