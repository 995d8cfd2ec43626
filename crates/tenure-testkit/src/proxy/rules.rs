//! The rules by which single messages are lost, delayed or held.

use std::time::Duration;

use super::command::Command;
use super::{Direction, ReplyLost};

/// A fault that was set up, by which it can be asked about and ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule(usize);

pub(super) type Matching = Box<dyn Fn(&Command) -> bool + Send>;

/// The effect of a rule on the messages that match.
pub(super) enum Effect {
    /// Loses one of them.
    Lose {
        /// Which one, from 1.
        nth: usize,
        how: ReplyLost,
    },
    Delay(Duration),
    Hold,
}

/// The faults that apply to one message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) lost: Option<ReplyLost>,
    pub(super) delay: Duration,
    pub(super) holds: Vec<Rule>,
}

/// All rules that were ever set; ended ones are kept for their count.
#[derive(Default)]
pub(super) struct Rules(Vec<Entry>);

struct Entry {
    direction: Direction,
    matching: Matching,
    effect: Effect,
    is_active: bool,
    matched: usize,
    strikes: usize,
}

impl Rules {
    pub(super) fn add(&mut self, direction: Direction, matching: Matching, effect: Effect) -> Rule {
        let entry = Entry { direction, matching, effect, is_active: true, matched: 0, strikes: 0 };
        self.0.push(entry);
        Rule(self.0.len() - 1)
    }

    pub(super) fn remove(&mut self, rule: Rule) {
        self.0[rule.0].is_active = false;
    }

    pub(super) fn remove_all(&mut self) {
        self.0.iter_mut().for_each(|entry| entry.is_active = false);
    }

    pub(super) fn release(&mut self) {
        let holds = self.0.iter_mut().filter(|entry| matches!(entry.effect, Effect::Hold));
        holds.for_each(|entry| entry.is_active = false);
    }

    pub(super) fn strikes(&self, rule: Rule) -> usize {
        self.0[rule.0].strikes
    }

    /// Applies the rules to a request, or to the reply to it. Must be called once for each: rules count.
    pub(super) fn apply(&mut self, direction: Direction, command: &Command) -> Verdict {
        let mut verdict = Verdict::default();
        for (index, entry) in self.0.iter_mut().enumerate() {
            if entry.is_active && entry.direction == direction && (entry.matching)(command) {
                entry.strike(Rule(index), &mut verdict);
            }
        }
        verdict
    }

    /// Whether one of these rules is still in force.
    pub(super) fn hold(&self, rules: &[Rule]) -> bool {
        rules.iter().any(|rule| self.0[rule.0].is_active)
    }
}

impl Entry {
    fn strike(&mut self, rule: Rule, verdict: &mut Verdict) {
        self.matched += 1;
        match self.effect {
            Effect::Lose { nth, .. } if nth != self.matched => return,
            Effect::Lose { how, .. } => verdict.lost = Some(how),
            Effect::Delay(duration) => verdict.delay = verdict.delay.max(duration),
            Effect::Hold => verdict.holds.push(rule),
        }
        self.strikes += 1;
    }
}
