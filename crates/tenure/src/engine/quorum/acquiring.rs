//! Acquires and cancels.

use std::collections::hash_map::Entry as Slot;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;

use super::Quorum;
use super::arrival::on_arrival;
use super::attempt::{Attempt, Caller, Sending, answer_cancelled};
use super::effect::Sent;
use super::errors::closed;
use super::holds::Leaving;
use super::left::Fate;
use crate::clock;
use crate::core::fence::Fence;
use crate::core::lease::Lease;
use crate::core::moment::Moment;
use crate::core::shape::Kind;
use crate::engine::{AcquireRequest, Acquired, Answer, CancelRequest};
use crate::error::StoreError;
use crate::foreign;
use crate::sync::lock;

/// An entry that is not asked for is dead by then, and has been served for its claim lease by then.
const UNASKED: Duration = Duration::from_secs(60);

impl Quorum {
    pub(super) fn acquire(self: &Arc<Self>, request: AcquireRequest) -> Answer<Acquired> {
        let mut answers = self.acquire_all(vec![request]);
        answers.pop().expect("there is an answer for each request")
    }

    /// Asks the nodes for a lock that this client does not hold any more.
    pub(super) fn ask_nodes(self: &Arc<Self>, request: AcquireRequest) -> Answer<Acquired> {
        let (caller, answer) = oneshot::channel();
        let (attempt, sending) = self.enlist(request, caller);
        self.send(&attempt, sending);
        Answer::later(async { answer.await.unwrap_or_else(|_| Err(closed())) })
    }

    /// Sends requests, in one trip to each node.
    pub(super) fn acquire_all(
        self: &Arc<Self>,
        requests: Vec<AcquireRequest>,
    ) -> Vec<Answer<Acquired>> {
        let mut answers = Vec::with_capacity(requests.len());
        let mut by_node: Vec<Vec<(Arc<Attempt>, Sending)>> =
            self.nodes.iter().map(|_| Vec::new()).collect();
        for request in requests {
            if let Err(error) = self.check_lease(request.lease, request.shape.kind()) {
                answers.push(Answer::now(Err(error)));
                continue;
            }
            if let Some(answer) = self.reenter(&request) {
                answers.push(answer);
                continue;
            }
            let (caller, answer) = oneshot::channel();
            answers.push(Answer::later(async { answer.await.unwrap_or_else(|_| Err(closed())) }));
            let (attempt, sending) = self.enlist(request, caller);
            if sending.is_empty() {
                self.decide(&attempt);
            }
            for it in sending {
                by_node[it.node].push((attempt.clone(), it));
            }
        }
        let sent = by_node.into_iter().enumerate();
        let sent = sent.flat_map(|(node, sending)| self.send_all(node, sending)).collect();
        self.await_votes(sent);
        answers
    }

    /// The attempt of this entry: the one that is under way, or a new one.
    fn enlist(
        self: &Arc<Self>,
        request: AcquireRequest,
        mut caller: Caller,
    ) -> (Arc<Attempt>, Vec<Sending>) {
        let key = (request.name.clone(), request.entry);
        let mut granted: Option<Arc<Attempt>> = None;
        loop {
            let attempt = match lock(&self.attempts).entry(key.clone()) {
                Slot::Occupied(known) => known.get().clone(),
                Slot::Vacant(free) => {
                    let proposal = self.propose(None);
                    let mut attempt = Attempt::new(request.clone(), self.size, proposal);
                    // A waiter may ask once more before it knows that it was granted the lock. Its attempt may be gone, and is noted as
                    // held before; or it was just removed here.
                    let held =
                        self.holds.attempt_of(&request.name, request.entry).or(granted.take());
                    held.iter().for_each(|held| attempt.adopt_entries(held));
                    free.insert(Arc::new(attempt)).clone()
                }
            };
            match attempt.ask(self, caller) {
                Ok(sending) => return (attempt, sending),
                // It was decided in between, and is being removed.
                Err(again) => {
                    caller = again;
                    self.strike(&attempt);
                    granted = Some(attempt).filter(|it| it.is_granted());
                }
            }
        }
    }

    /// Sends all requests to one node, in one trip.
    fn send_all(&self, node: usize, sending: Vec<(Arc<Attempt>, Sending)>) -> Vec<Sent> {
        let requests = sending.iter().map(|(_, it)| it.request.clone()).collect();
        let answers = self.nodes[node].engine().acquire_all(requests);
        let sent = sending.into_iter().zip(answers).map(|((attempt, it), answer)| Sent {
            attempt,
            vote: (node, it.round, it.sent),
            answer,
        });
        sent.collect()
    }

    /// Removes a decided attempt.
    pub(super) fn strike(&self, attempt: &Arc<Attempt>) {
        let key = (attempt.request.name.clone(), attempt.request.entry);
        if let Slot::Occupied(known) = lock(&self.attempts).entry(key)
            && Arc::ptr_eq(known.get(), attempt)
        {
            known.remove();
        }
    }

    /// Ends the entry at a node that may have it.
    pub(super) fn end_at(&self, node: usize, attempt: &Attempt) {
        // It is being detached, perhaps by another thread that has not let it go yet.
        let is_detached = || {
            attempt.is_about_hold()
                && self.is_detached(&attempt.request.name, attempt.request.entry)
        };
        if attempt.is_let_go() || is_detached() {
            return self.watch_late(node, attempt);
        }
        let (name, entry) = (attempt.request.name.clone(), attempt.entry_at(node));
        self.nodes[node].end(CancelRequest { name, entry }, self.over(&attempt.request));
    }

    /// When a request that was sent has ended by itself at every node.
    pub(super) fn over(&self, request: &AcquireRequest) -> Moment {
        clock::now() + request.lease.duration() * 2 + UNASKED
    }

    /// Cancels at all nodes (I6). A majority confirms it; the others are reminded.
    pub(super) fn cancel(self: &Arc<Self>, request: CancelRequest) -> Answer<()> {
        let key = (request.name.clone(), request.entry);
        let attempt = lock(&self.attempts).remove(&key);
        if let Some(attempt) = &attempt {
            answer_cancelled(self.holds.end_question(attempt));
        }
        let attempt = match self.holds.leave(&request.name, request.entry) {
            Leaving::Counted { .. } => return Answer::now(Ok(())),
            Leaving::AtNodes(held) => {
                // First: then no node gets another number any more.
                answer_cancelled(held.end());
                Some(held)
            }
            // Of a question that was asked before it was detached: the process with the handle ends the entry.
            Leaving::Unknown
                if attempt.is_none() && self.is_detached(&request.name, request.entry) =>
            {
                return Answer::now(Ok(()));
            }
            Leaving::Unknown => attempt,
        };
        let (done, answer) = oneshot::channel();
        let counting = Arc::new(Mutex::new(Counting {
            confirmed: 0,
            errors: vec![None; self.nodes.len()],
            done: Some(done),
        }));
        let until = clock::now() + self.longest * 2 + UNASKED;
        for (node, it) in self.nodes.iter().enumerate() {
            let (quorum, counting) = (self.clone(), counting.clone());
            let entry = attempt.as_ref().map_or(request.entry, |attempt| attempt.entry_at(node));
            let request = CancelRequest { name: request.name.clone(), entry };
            on_arrival(it.engine().cancel(request.clone()), move |result| {
                if let Err(error) = &result {
                    let fate = Fate::from(error);
                    quorum.nodes[node].leave_behind(request.name, request.entry, until, fate);
                }
                quorum.count_cancel(&counting, node, result);
            });
        }
        Answer::later(async { answer.await.unwrap_or_else(|_| Err(closed())) })
    }

    fn count_cancel(
        &self,
        counting: &Mutex<Counting>,
        node: usize,
        result: Result<(), StoreError>,
    ) {
        let mut counting = lock(counting);
        match result {
            Ok(()) => counting.confirmed += 1,
            Err(error) => counting.errors[node] = Some(error),
        }
        let failed = counting.errors.iter().flatten().count();
        let verdict = if counting.confirmed >= self.size.majority() {
            Ok(())
        } else if failed > self.nodes.len() - self.size.majority() {
            Err(self.failure(&counting.errors, true))
        } else {
            return;
        };
        let done = counting.done.take();
        drop(counting);
        if let Some(done) = done {
            foreign::call(|| drop(done.send(verdict)));
        }
    }

    /// The next fence to propose.
    pub(super) fn propose(&self, last: Option<Fence>) -> Fence {
        lock(&self.proposals).next(last, clock::both().wall)
    }

    /// Notes a fence, so that the next proposal is larger.
    pub(super) fn note_fence(&self, fence: Fence) {
        lock(&self.proposals).note(fence, clock::both().wall);
    }

    /// A node that lost its data does not vote for the longest lease, so none may be longer. The count of a latch
    /// excludes no one.
    pub(super) fn check_lease(&self, lease: Lease, kind: Kind) -> Result<(), StoreError> {
        if lease.duration() <= self.longest || kind == Kind::Latch {
            return Ok(());
        }
        let what = format!(
            "a lease of {:?} is longer than this quorum allows, {:?}: use a shorter one, or mark the nodes again \
             with `tenure quorum init --max-lease`",
            lease.duration(),
            self.longest
        );
        Err(StoreError::refused(what).lasting())
    }
}

/// The answers to a cancel.
struct Counting {
    confirmed: usize,
    errors: Vec<Option<StoreError>>,
    done: Option<oneshot::Sender<Result<(), StoreError>>>,
}
