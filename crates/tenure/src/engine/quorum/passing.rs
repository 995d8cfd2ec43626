//! A party of a barrier passes once a majority of the nodes has opened, but is told when it waits at no other node any more.
//!
//! Left in the queue of a node, it would be counted with the parties of the next round, so that this node opens too early. And a party
//! that leaves a node before the others have arrived there may leave one of them alone, if that one has met another majority (I7). In the
//! usual case all nodes open at nearly the same moment.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::arrival::on_arrival;
use super::attempt::{Attempt, Caller};
use super::left::Fate;
use super::{Quorum, pause};
use crate::core::shape::Kind;
use crate::engine::{CancelRequest, Grant};
use crate::sync::lock;

/// How long the other nodes are awaited, first to open, and then to confirm that the party has left.
const GRACE: Duration = Duration::from_millis(500);

impl Quorum {
    /// Reports that the barrier has opened, once it waits nowhere.
    pub(super) fn pass(
        self: &Arc<Self>,
        attempt: &Arc<Attempt>,
        grant: Grant,
        callers: Vec<Caller>,
    ) {
        if attempt.waits_at().is_empty() {
            return self.grant(attempt, grant, callers);
        }
        // It has passed, whatever its caller does meanwhile: asks once more, or gives up.
        self.note_grant(attempt, &grant);
        let (quorum, attempt) = (self.clone(), attempt.clone());
        self.io.spawn(async move {
            tokio::select! {
                () = attempt.until_opened() => {}
                () = pause(GRACE) => {}
            }
            quorum.leave_queues(&attempt).await;
            if !callers.is_empty() || quorum.holds.has(&attempt) {
                quorum.report_grant(&attempt, grant, callers);
            }
        });
    }

    async fn leave_queues(self: &Arc<Self>, attempt: &Attempt) {
        // It ends when all senders are dropped.
        let (pending, mut ended) = mpsc::channel::<Infallible>(1);
        for node in attempt.waits_at() {
            let (name, entry) = (attempt.request.name.clone(), attempt.entry_at(node));
            let (request, until) = (CancelRequest { name, entry }, self.over(&attempt.request));
            let (quorum, pending) = (self.clone(), pending.clone());
            on_arrival(self.nodes[node].engine().cancel(request.clone()), move |result| {
                if let Err(error) = &result {
                    let fate = Fate::from(error);
                    quorum.nodes[node].leave_behind(request.name, request.entry, until, fate);
                }
                drop(pending);
            });
        }
        drop(pending);
        tokio::select! {
            _ = ended.recv() => {}
            () = pause(GRACE) => {}
        }
    }
}

impl Attempt {
    /// Whether other parties wait for it.
    pub(super) fn is_party(&self) -> bool {
        self.request.shape.kind() == Kind::Barrier
    }

    pub(super) fn note_vote(&self) {
        if self.is_party() {
            self.voted.notify_one();
        }
    }

    /// The nodes that may have it in their queues.
    fn waits_at(&self) -> Vec<usize> {
        let state = lock(&self.state);
        let waits =
            |node: &usize| state.candidate.is_there(*node) && !state.candidate.is_held_at(*node);
        (0..state.rounds.len()).filter(waits).collect()
    }

    async fn until_opened(&self) {
        while !self.waits_at().is_empty() {
            self.voted.notified().await;
        }
    }
}
