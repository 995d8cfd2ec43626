//! Random walks that get far: in some most steps deliver a message, in others much time passes, and faults are rare.

use stateright::Chooser;

use super::{Action, Quorum, World};

/// Chooses a kind of action by its weight, and then one of that kind.
#[derive(Clone)]
pub(super) struct Walk;

impl Chooser<Quorum> for Walk {
    /// The random numbers, and how often time passes.
    type State = (u64, u64);

    fn new_state(&self, mut seed: u64) -> (u64, u64) {
        let ticks = [1, 4, 16][(next(&mut seed) % 3) as usize];
        (seed, ticks)
    }

    fn choose_initial_state(&self, _: &mut (u64, u64), _: &[World]) -> usize {
        0
    }

    fn choose_action(
        &self,
        (random, ticks): &mut (u64, u64),
        _: &World,
        actions: &[Action],
    ) -> usize {
        let kind = |action: &Action| weight(action, *ticks);
        let count = |of| actions.iter().filter(|it| kind(it) == of).count();
        // Each kind's weight is shared by its actions, so a fault at one of many places is as rare as at one of few.
        let shares = actions.iter().map(|action| {
            let weight = kind(action);
            (weight.0 * 1000) / count(weight) as u64
        });
        let shares: Vec<_> = shares.collect();
        let mut left = next(random) % shares.iter().sum::<u64>();
        let chosen = shares.iter().position(|share| match left.checked_sub(*share) {
            None => true,
            Some(rest) => {
                left = rest;
                false
            }
        });
        chosen.unwrap_or(0)
    }
}

/// How often a kind of action is chosen, and its number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Weight(u64, u8);

fn weight(action: &Action, ticks: u64) -> Weight {
    match action {
        Action::Deliver(_) => Weight(16, 0),
        Action::Acquire(_) | Action::Retry(_) | Action::AskAgain(_) | Action::Renew(_) => {
            Weight(4, 1)
        }
        Action::Tick => Weight(ticks, 2),
        Action::GiveUp(_) => Weight(2, 3),
        Action::GiveBackMinority(_) => Weight(2, 4),
        Action::Repeat(_) => Weight(1, 5),
        Action::Restart(..) => Weight(1, 6),
    }
}

/// SplitMix64.
fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *random;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
