//! A hold that another client is to release by its handle, which has one number of entry for all nodes.
//!
//! A node that was asked to end an earlier entry of the same request knows this one by another number. Then all nodes get one
//! more entry, under a number that was never used before, and end the one that they had.

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use super::Quorum;
use super::arrival::on_arrival;
use super::attempt::{Attempt, answer_cancelled};
use super::errors::closed;
use super::left::Fate;
use crate::core::name::LockName;
use crate::core::shape::Shape;
use crate::engine::{AcquireRequest, Acquired, Answer, CancelRequest, Proposal};
use crate::error::StoreError;
use crate::foreign;
use crate::owner::{Entry, unique_number};
use crate::sync::lock;

/// The answers of the nodes.
struct Renaming {
    request: AcquireRequest,
    renamed: usize,
    /// Nodes that may have both entries.
    unknown: Vec<usize>,
    /// Whether enough nodes have the other entry, once that is decided.
    is_renamed: Option<bool>,
    errors: Vec<Option<StoreError>>,
    done: Option<oneshot::Sender<Result<Entry, StoreError>>>,
}

impl Quorum {
    /// The entry by which any client can end a hold of this one.
    pub(super) fn common_entry(self: &Arc<Self>, name: &LockName, entry: Entry) -> Answer<Entry> {
        let Some(attempt) = self.holds.attempt_of(name, entry) else {
            return Answer::now(Ok(entry));
        };
        let mut nodes = 0..self.nodes.len();
        if nodes.all(|node| attempt.entry_at(node) == entry) {
            return Answer::now(Ok(entry));
        }
        let Some(request) = self.another_entry(&attempt) else { return Answer::now(Ok(entry)) };
        let (done, answer) = oneshot::channel();
        let renaming = Arc::new(Mutex::new(Renaming {
            request: request.clone(),
            renamed: 0,
            unknown: Vec::new(),
            is_renamed: None,
            errors: vec![None; self.nodes.len()],
            done: Some(done),
        }));
        for (node, it) in self.nodes.iter().enumerate() {
            let (quorum, attempt, renaming) = (self.clone(), attempt.clone(), renaming.clone());
            let entry = request.entry;
            on_arrival(it.engine().acquire(request.clone()), move |result| {
                let result = quorum.rename_at(node, &attempt, entry, result);
                quorum.count_renamed(&renaming, node, attempt.needed(), result.map(|()| entry));
            });
        }
        Answer::later(async { answer.await.unwrap_or_else(|_| Err(closed())) })
    }

    /// A request for one more entry: granted where its owner holds the lock, and outdated where it does not.
    fn another_entry(&self, attempt: &Arc<Attempt>) -> Option<AcquireRequest> {
        let (permits, fence) = self.holds.terms(attempt)?;
        let (owner, shape) = (attempt.request.entry.owner, attempt.request.shape);
        Some(AcquireRequest {
            entry: Entry { owner, number: unique_number() },
            shape: Shape::new(shape.kind(), shape.limit(), permits).ok()?,
            queue: None,
            proposal: Some(Proposal { fence, is_repair: false, is_repeated: true }),
            ..attempt.request.clone()
        })
    }

    /// A node has the other entry: it ends the first one. Unless the hold has ended meanwhile.
    fn rename_at(
        &self,
        node: usize,
        attempt: &Arc<Attempt>,
        entry: Entry,
        result: Result<Acquired, StoreError>,
    ) -> Result<(), StoreError> {
        let name = attempt.request.name.clone();
        // The process with the handle may have released it before.
        if attempt.is_let_go() {
            self.watch_late(node, attempt);
            self.watch_entry(node, name.clone(), entry);
        }
        let result = result?;
        if !matches!(result, Acquired::Granted(_)) {
            return Err(StoreError::refused("it does not hold the lock any more"));
        }
        let former = attempt.rename_at(node, entry);
        if former.is_some() || !attempt.is_let_go() {
            let entry = former.unwrap_or(entry);
            self.nodes[node].end(CancelRequest { name, entry }, self.over(&attempt.request));
        }
        former.map(drop).ok_or_else(|| StoreError::refused("it was released"))
    }

    /// A hold was detached. A question of the waiter that it was may still be under way: it must not be granted the lock after the
    /// process with the handle has released it, because no task of this client would release it.
    pub(super) fn end_question(&self, detached: &Attempt) {
        let key = (detached.request.name.clone(), detached.request.entry);
        let question = lock(&self.attempts).remove(&key);
        if let Some(question) = question {
            question.let_go();
            self.watch_unsure(&question);
            answer_cancelled(question.end());
        }
    }

    /// A hold was detached: the process with its handle renews and ends it by the number that most nodes have. A node that has another
    /// one does not count for that process, which never ends it: it is ended here.
    pub(super) fn end_unnamed(&self, attempt: &Attempt) {
        let entries: Vec<_> = (0..self.nodes.len()).map(|node| attempt.entry_at(node)).collect();
        let times = |entry: &Entry| entries.iter().filter(|it| *it == entry).count();
        let common = entries.iter().copied().max_by_key(times);
        let others = entries.into_iter().enumerate().filter(|(_, entry)| Some(*entry) != common);
        for (node, entry) in others {
            let end = CancelRequest { name: attempt.request.name.clone(), entry };
            self.nodes[node].end(end, self.over(&attempt.request));
        }
    }

    /// Too few nodes have the other entry, so that the first one counts. Where the other one may be, too, it ends. If enough have it, it is
    /// that of the handle, and is never ended here: the process with the handle relies on every node that has it (I1).
    fn end_unrenamed(&self, all: &mut Renaming) {
        if all.is_renamed == Some(false) {
            let (name, entry, until) =
                (&all.request.name, all.request.entry, self.over(&all.request));
            for node in all.unknown.drain(..) {
                self.nodes[node].leave_behind(name.clone(), entry, until, Fate::Unknown);
            }
        }
    }

    fn count_renamed(
        &self,
        renaming: &Mutex<Renaming>,
        node: usize,
        needed: usize,
        result: Result<Entry, StoreError>,
    ) {
        let mut all = lock(renaming);
        let entry = match result {
            Ok(entry) => {
                all.renamed += 1;
                Some(entry)
            }
            Err(error) => {
                if error.is_unknown() {
                    all.unknown.push(node);
                }
                all.errors[node] = Some(error);
                None
            }
        };
        let failed = all.errors.iter().flatten().count();
        let is_renamed = match entry {
            Some(_) if all.renamed >= needed => Some(true),
            _ if failed > self.nodes.len() - needed => Some(false),
            _ => None,
        };
        all.is_renamed = all.is_renamed.or(is_renamed);
        self.end_unrenamed(&mut all);
        let verdict = match entry {
            Some(entry) if all.renamed >= needed => Ok(entry),
            _ if failed > self.nodes.len() - needed => {
                Err(self.failure_of(needed, &all.errors, false))
            }
            _ => return,
        };
        let done = all.done.take();
        drop(all);
        if let Some(done) = done {
            foreign::call(|| drop(done.send(verdict)));
        }
    }
}
