//! What follows from a vote, performed while no mutex is held.

use std::sync::Arc;
use std::time::Duration;

use super::arrival::on_arrival;
use super::attempt::{Attempt, Caller, Sending};
use super::{Quorum, pause};
use crate::core::fence::Fence;
use crate::core::moment::Moment;
use crate::engine::{Acquired, Answer, CancelRequest, Grant, Renewal, Standing, Wakeup};
use crate::error::StoreError;
use crate::foreign;
use crate::owner::Entry;
use crate::sync::lock;

/// A request that was sent to a node.
pub(super) struct Sent {
    pub(super) attempt: Arc<Attempt>,
    /// The node, the number of the request, and when it was sent.
    pub(super) vote: (usize, u32, Moment),
    pub(super) answer: Answer<Acquired>,
}

/// What an attempt does next.
#[must_use = "an effect must be performed"]
pub(super) enum Effect {
    None,
    /// Requests to nodes.
    Send(Vec<Sending>),
    Granted {
        grant: Grant,
        callers: Vec<Caller>,
    },
    Queued {
        standing: Standing,
        callers: Vec<Caller>,
        regroup: Option<Duration>,
    },
    /// Ended without a grant: these nodes may have the entry (I6).
    Failed {
        end: Vec<usize>,
        callers: Vec<Caller>,
        result: Result<Acquired, StoreError>,
    },
    /// Nodes take the entry back; it is asked for again after a pause.
    GiveBack {
        /// With the entry that each of them has.
        nodes: Vec<(usize, Entry)>,
        pause: Duration,
    },
    /// All nodes that hold it store this fence.
    Commit {
        fence: Fence,
        sent: Moment,
    },
    /// The rest of the answers is awaited for so long.
    AwaitRest {
        round: u32,
        delay: Duration,
    },
    /// The caller, which believes that it waits, should ask.
    AskAgain,
}

impl Quorum {
    pub(super) fn perform(self: &Arc<Self>, attempt: &Arc<Attempt>, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Send(sending) => self.send(attempt, sending),
            Effect::Granted { grant, callers } if attempt.is_party() => {
                self.pass(attempt, grant, callers);
            }
            Effect::Granted { grant, callers } => self.grant(attempt, grant, callers),
            Effect::Queued { standing, callers, regroup } => {
                // Once for each question.
                if !callers.is_empty() {
                    self.add_up_counts(attempt);
                }
                answer(callers, &Ok(Acquired::Queued(standing)));
                if let Some(delay) = regroup {
                    self.after(delay, attempt, |quorum, attempt| attempt.regroup(quorum));
                }
            }
            Effect::Failed { end, callers, result } => {
                self.strike(attempt);
                // A question about what is held: that it fails must not end the hold.
                let end = end.into_iter().filter(|node| !self.is_of_hold(*node, attempt));
                end.for_each(|node| self.end_at(node, attempt));
                answer(callers, &result);
            }
            Effect::GiveBack { nodes, pause } => {
                nodes.into_iter().for_each(|node| self.give_back(attempt, node, pause));
            }
            Effect::Commit { fence, sent } => self.commit(attempt, fence, sent),
            Effect::AwaitRest { round, delay } => {
                self.after(delay, attempt, move |quorum, it| it.rest_is_over(quorum, round));
            }
            Effect::AskAgain => self.wake_to_ask(attempt),
        }
    }

    /// Sends requests; answers are counted where they arrive.
    pub(super) fn send(self: &Arc<Self>, attempt: &Arc<Attempt>, sending: Vec<Sending>) {
        if sending.is_empty() {
            return self.decide(attempt);
        }
        let sent = sending.into_iter().map(|Sending { node, round, sent, request }| {
            let answer = self.nodes[node].engine().acquire(request);
            Sent { attempt: attempt.clone(), vote: (node, round, sent), answer }
        });
        let sent = sent.collect();
        self.await_votes(sent);
    }

    /// Decides without an answer: none of the nodes could be asked, so none will come (I7).
    pub(super) fn decide(self: &Arc<Self>, attempt: &Arc<Attempt>) {
        let effect = attempt.decide(self, &mut lock(&attempt.state));
        self.perform(attempt, effect);
    }

    /// Counts votes when they arrive. Not before all requests were sent: a verdict may end the entry at every node, and
    /// must not precede the request there.
    pub(super) fn await_votes(self: &Arc<Self>, sent: Vec<Sent>) {
        for Sent { attempt, vote: (node, ..), .. } in &sent {
            // It was cancelled, or granted and released, while it was sent. If it is about what is held, the hold may have stayed: it has
            // kept permits, or other entries.
            if attempt.has_ended() && !self.is_of_hold(*node, attempt) {
                self.end_at(*node, attempt);
            }
        }
        for Sent { attempt, vote, answer } in sent {
            let quorum = self.clone();
            on_arrival(answer, move |result| {
                quorum.answered_late(vote.0, &attempt, &result);
                let effect = attempt.answered(&quorum, vote, result);
                quorum.perform(&attempt, effect);
            });
        }
    }

    /// Whether a node knows the entry of an attempt as that of a hold of this client.
    pub(super) fn is_of_hold(&self, node: usize, attempt: &Attempt) -> bool {
        let held = self.holds.attempt_of(&attempt.request.name, attempt.request.entry);
        held.is_some_and(|held| held.entry_at(node) == attempt.entry_at(node))
    }

    /// Runs a step of an attempt later.
    fn after(
        self: &Arc<Self>,
        delay: Duration,
        attempt: &Arc<Attempt>,
        step: impl FnOnce(&Self, &Attempt) -> Effect + Send + 'static,
    ) {
        let (quorum, attempt) = (self.clone(), attempt.clone());
        self.io.spawn(async move {
            pause(delay).await;
            let effect = step(&quorum, &attempt);
            quorum.perform(&attempt, effect);
        });
    }

    pub(super) fn grant(
        self: &Arc<Self>,
        attempt: &Arc<Attempt>,
        grant: Grant,
        callers: Vec<Caller>,
    ) {
        // First: the holder may release it at once.
        self.note_grant(attempt, &grant);
        self.report_grant(attempt, grant, callers);
    }

    pub(super) fn note_grant(&self, attempt: &Arc<Attempt>, grant: &Grant) {
        self.holds.add(attempt, grant);
        self.owe(attempt);
    }

    pub(super) fn report_grant(
        self: &Arc<Self>,
        attempt: &Arc<Attempt>,
        grant: Grant,
        callers: Vec<Caller>,
    ) {
        self.strike(attempt);
        if callers.is_empty() {
            let (name, entry) = (attempt.request.name.clone(), attempt.request.entry);
            return self.wake(Wakeup::Granted { name, entry, grant });
        }
        answer(callers, &Ok(Acquired::Granted(grant)));
    }

    fn give_back(
        self: &Arc<Self>,
        attempt: &Arc<Attempt>,
        (node, entry): (usize, Entry),
        delay: Duration,
    ) {
        if attempt.is_let_go() {
            return;
        }
        let (quorum, attempt) = (self.clone(), attempt.clone());
        let until = self.over(&attempt.request);
        let request = CancelRequest { name: attempt.request.name.clone(), entry };
        // The attempt has another number there from now on, but one that follows it begins with this number again.
        self.nodes[node].end_and(request, until, move |result| {
            quorum.after(delay, &attempt, move |quorum, attempt| {
                attempt.gave_back(quorum, node, result)
            });
        });
    }

    fn commit(self: &Arc<Self>, attempt: &Arc<Attempt>, fence: Fence, sent: Moment) {
        for (node, it) in self.nodes.iter().enumerate() {
            let renewal = Renewal {
                name: attempt.request.name.clone(),
                entry: attempt.entry_at(node),
                lease: attempt.request.lease,
                commit: Some(fence),
            };
            let (quorum, attempt) = (self.clone(), attempt.clone());
            on_arrival(it.engine().renew(vec![renewal]), move |result| {
                let short = || Err(StoreError::unknown("the answer is too short"));
                let result = result.and_then(|mut all| all.pop().unwrap_or_else(short));
                let effect = attempt.committed(&quorum, (node, sent), result);
                quorum.perform(&attempt, effect);
            });
        }
    }

    fn wake_to_ask(&self, attempt: &Attempt) {
        let (name, entry) = (attempt.request.name.clone(), attempt.request.entry);
        self.wake(Wakeup::Sooner { name, entry });
    }
}

/// Answers all callers of an attempt.
pub(super) fn answer(callers: Vec<Caller>, result: &Result<Acquired, StoreError>) {
    for caller in callers {
        // It wakes tasks of foreign executors.
        foreign::call(|| drop(caller.send(result.clone())));
    }
}
