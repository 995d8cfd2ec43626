//! Releases.

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use super::Quorum;
use super::arrival::on_arrival;
use super::attempt::answer_cancelled;
use super::errors::closed;
use super::holds::Leaving;
use super::left::Fate;
use crate::clock;
use crate::core::moment::Moment;
use crate::core::quorum::{End, Ended, Ending};
use crate::engine::{Answer, CancelRequest, ReleaseOutcome, ReleaseRequest};
use crate::error::StoreError;
use crate::foreign;
use crate::sync::lock;

/// A release under way.
struct Releasing {
    ending: Ending,
    needed: usize,
    errors: Vec<Option<StoreError>>,
    /// The entry, if it is released by its handle, and the nodes that do not hold it, one bit each.
    handle: Option<(CancelRequest, u8)>,
    /// Until when it is remembered that a handle is being released.
    until: Moment,
    done: Option<oneshot::Sender<Result<ReleaseOutcome, StoreError>>>,
}

impl Quorum {
    /// Releases at all nodes. At a node that may have the entry in its queue it is cancelled, which covers both: it must
    /// not be served later. One that keeps some permits would be served there with all of them; a renewal repairs that
    /// node with what it has kept.
    pub(super) fn release(self: &Arc<Self>, request: ReleaseRequest) -> Answer<ReleaseOutcome> {
        // A question of a waiter that was granted meanwhile.
        let waiting = lock(&self.attempts).remove(&(request.name.clone(), request.entry));
        if let Some(attempt) = waiting {
            answer_cancelled(self.holds.end_question(&attempt));
        }
        let leaving = match request.keep {
            0 => self.holds.leave(&request.name, request.entry),
            keep => self.holds.keep(&request.name, request.entry, keep),
        };
        let attempt = match leaving {
            Leaving::AtNodes(attempt) => Some(attempt),
            Leaving::Counted { remaining } => {
                return Answer::now(Ok(ReleaseOutcome::Released { remaining }));
            }
            Leaving::Unknown => None,
        };
        // First: then no node gets another number any more.
        let ended = attempt.iter().filter(|_| request.keep == 0);
        ended.for_each(|attempt| answer_cancelled(attempt.end()));
        let entry_at = |node| match &attempt {
            Some(attempt) => attempt.entry_at(node),
            None => request.entry,
        };
        let mut entries: Vec<_> = (0..self.nodes.len()).map(entry_at).collect();
        let (known, needed) = match &attempt {
            Some(attempt) => {
                let mut state = lock(&attempt.state);
                let is_known =
                    |node| state.candidate.is_held_at(node) || attempt.request.queue.is_none();
                let known: Vec<_> = (0..self.nodes.len()).map(is_known).collect();
                // What is kept gets another number where it is cancelled, in the same step: a grant that is under way must not
                // count (I1).
                let keeps = request.keep > 0 && request.linger.is_zero();
                for (node, _) in known.iter().enumerate().filter(|(_, known)| keeps && !**known) {
                    entries[node] = state.take_back(attempt, node);
                }
                (known, state.candidate.needed())
            }
            None => (vec![true; self.nodes.len()], self.size.majority()),
        };
        let until = self.forgotten_at();
        if attempt.is_none() && request.keep == 0 {
            self.detached.note_release(&request.name, request.entry, until);
        }
        let (done, answer) = oneshot::channel();
        let releasing = Arc::new(Mutex::new(Releasing {
            ending: Ending::new(self.size, needed),
            needed,
            errors: vec![None; self.nodes.len()],
            handle: (attempt.is_none() && request.keep == 0)
                .then(|| (CancelRequest { name: request.name.clone(), entry: request.entry }, 0)),
            until,
            done: Some(done),
        }));
        for (node, is_known) in known.into_iter().enumerate() {
            let request = ReleaseRequest { entry: entries[node], ..request.clone() };
            if is_known || !request.linger.is_zero() {
                self.release_at(node, &request, &releasing);
            } else {
                self.cancel_at(node, &request, &releasing);
            }
        }
        Answer::later(async { answer.await.unwrap_or_else(|_| Err(closed())) })
    }

    fn release_at(
        self: &Arc<Self>,
        node: usize,
        request: &ReleaseRequest,
        releasing: &Arc<Mutex<Releasing>>,
    ) {
        let (quorum, releasing) = (self.clone(), releasing.clone());
        let ReleaseRequest { name, entry, keep, linger, .. } = request.clone();
        let lingers_until = clock::now() + linger;
        on_arrival(self.nodes[node].engine().release(request.clone()), move |result| {
            if let Err(error) = &result {
                let (it, until, fate) =
                    (&quorum.nodes[node], quorum.forgotten_at(), Fate::from(error));
                match linger.is_zero() {
                    true => it.leave_behind_but(keep, name, entry, until, fate),
                    false => it.leave_lingering(name, entry, lingers_until, until, fate),
                }
            }
            quorum.count_release(
                &releasing,
                node,
                result.map(|outcome| match outcome {
                    ReleaseOutcome::Released { remaining } => End::Released { remaining },
                    ReleaseOutcome::NotHeld => End::NotHeld,
                }),
            );
        });
    }

    fn cancel_at(
        self: &Arc<Self>,
        node: usize,
        request: &ReleaseRequest,
        releasing: &Arc<Mutex<Releasing>>,
    ) {
        let (quorum, releasing) = (self.clone(), releasing.clone());
        let cancel = CancelRequest { name: request.name.clone(), entry: request.entry };
        on_arrival(self.nodes[node].engine().cancel(cancel.clone()), move |result| {
            if let Err(error) = &result {
                let (until, fate) = (quorum.forgotten_at(), Fate::from(error));
                quorum.nodes[node].leave_behind(cancel.name, cancel.entry, until, fate);
            }
            quorum.count_release(&releasing, node, result.map(|()| End::Cancelled));
        });
    }

    /// When a node that was not reached has ended the hold by itself.
    fn forgotten_at(&self) -> Moment {
        clock::now() + self.longest * 2
    }

    fn count_release(
        self: &Arc<Self>,
        releasing: &Mutex<Releasing>,
        node: usize,
        result: Result<End, StoreError>,
    ) {
        let mut all = lock(releasing);
        match result {
            Ok(end) => {
                if let (Some((_, not_held)), End::NotHeld) = (&mut all.handle, &end) {
                    *not_held |= 1 << node;
                }
                all.ending.note(node, end);
            }
            Err(error) => {
                all.ending.note(node, End::Silent);
                all.errors[node] = Some(error);
            }
        }
        let outcome = match all.ending.verdict() {
            Ended::Open => return,
            Ended::Released { remaining } => Ok(ReleaseOutcome::Released { remaining }),
            Ended::NotHeld => Ok(ReleaseOutcome::NotHeld),
            Ended::Failed => Err(self.failure_of(all.needed, &all.errors, true)),
        };
        let confirmed = all.handle.as_ref().filter(|_| all.ending.is_released_everywhere());
        let confirmed = confirmed.map(|(cancel, _)| cancel.clone());
        let queues = match outcome {
            Ok(ReleaseOutcome::Released { .. }) => all.queues_of_handle(),
            _ => None,
        };
        let (done, until) = (all.done.take(), all.until);
        drop(all);
        if let Some(CancelRequest { name, entry }) = confirmed {
            self.detached.note_released(&name, entry, until);
        }
        done.into_iter().for_each(|done| drop(foreign::call(|| done.send(outcome.clone()))));
        if let Some((cancel, nodes)) = queues {
            let nodes = (0..self.nodes.len()).filter(|node| nodes & (1 << node) != 0);
            nodes.for_each(|node| self.nodes[node].end(cancel.clone(), self.forgotten_at()));
        }
    }
}

impl Releasing {
    /// A majority has released a hold that another client has acquired. A node that did not hold it may have it in its queue, where
    /// it must not be served any more (I6). Returns each of them once.
    fn queues_of_handle(&mut self) -> Option<(CancelRequest, u8)> {
        let (cancel, not_held) = self.handle.as_mut()?;
        let nodes = std::mem::take(not_held);
        (nodes != 0).then(|| (cancel.clone(), nodes))
    }
}
