//! Wake-ups of the nodes, merged: a waiter is granted when enough nodes have handed over to it, and a holder has lost
//! when too few are left.

use std::sync::{Arc, Weak};

use super::Quorum;
use super::attempt::Attempt;
use crate::clock;
use crate::core::name::LockName;
use crate::engine::{CancelRequest, Grant, Listener, Wakeup};
use crate::owner::{Entry, Owner};
use crate::sync::lock;

/// Receives the wake-ups of one node.
pub(super) struct NodeListener {
    quorum: Weak<Quorum>,
    node: usize,
}

impl NodeListener {
    pub(super) fn new(quorum: &Weak<Quorum>, node: usize) -> Arc<Self> {
        Arc::new(Self { quorum: quorum.clone(), node })
    }
}

impl Listener for NodeListener {
    fn wake(&self, wakeup: Wakeup) {
        let Some(quorum) = self.quorum.upgrade() else { return };
        let node = self.node;
        match wakeup {
            Wakeup::Granted { name, entry, grant } => quorum.handed_over(node, name, entry, grant),
            Wakeup::Lost { name, owner } => quorum.taken_away(node, name, owner),
            Wakeup::Sooner { name, entry } => {
                // Of any node: others may have known it when they were asked, and say nothing.
                if let Some(attempt) = quorum.waiting_at(node, &name, entry) {
                    quorum.wake(Wakeup::Sooner { name, entry: attempt.request.entry });
                }
            }
            Wakeup::Freed { name } => quorum.wake(Wakeup::Freed { name }),
            Wakeup::Missed | Wakeup::MissedIn(_) => quorum.wake(Wakeup::Missed),
            Wakeup::Returned => quorum.wake(Wakeup::Returned),
        }
    }
}

impl Quorum {
    /// A forced release at a node: of a holder, or of a waiter that has a minority.
    fn taken_away(self: &Arc<Self>, node: usize, name: LockName, owner: Owner) {
        let is_meant = |((of, entry), _): &(&(LockName, Entry), &Arc<Attempt>)| {
            *of == name && entry.owner == owner
        };
        let waiting: Vec<_> =
            lock(&self.attempts).iter().filter(is_meant).map(|(_, it)| it.clone()).collect();
        for attempt in waiting {
            let effect = attempt.taken_away(self, node);
            self.perform(&attempt, effect);
        }
        self.counts.forget(&name, owner);
        if self.holds.lose(&name, owner, node, self.nodes.len()) {
            self.wake(Wakeup::Lost { name, owner });
        }
    }

    /// The attempt that waits under this entry at a node.
    pub(super) fn waiting_at(
        &self,
        node: usize,
        name: &LockName,
        entry: Entry,
    ) -> Option<Arc<Attempt>> {
        let attempts = lock(&self.attempts);
        let is_it = |attempt: &&Arc<Attempt>| attempt.entry_at(node) == entry;
        let usual = attempts.get(&(name.clone(), entry));
        // Another number is used after the node was to end an earlier one.
        let others = || {
            let of_owner =
                |(of, other): &&(LockName, Entry)| of == name && other.owner == entry.owner;
            attempts.keys().filter(of_owner).filter_map(|key| attempts.get(key)).find(is_it)
        };
        usual.filter(is_it).or_else(others).cloned()
    }

    fn handed_over(self: &Arc<Self>, node: usize, name: LockName, entry: Entry, grant: Grant) {
        let waiting = self.waiting_at(node, &name, entry);
        let attempt = waiting.or_else(|| self.holds.attempt_at(node, &name, entry));
        match attempt {
            Some(attempt) => {
                let effect = attempt.handed_over(self, node, grant);
                self.perform(&attempt, effect);
            }
            // The process with its handle has it, or has released it.
            None if self.is_detached(&name, entry) => {
                self.watch_entry(node, name, entry);
            }
            // It is not wanted any more: it passes to the next.
            None => self.end_unwanted(node, CancelRequest { name, entry }),
        }
    }

    /// No attempt wants what a node has granted. The end is noted in one step with looking for the attempt: one that begins after that
    /// has another number there (I1).
    fn end_unwanted(self: &Arc<Self>, node: usize, request: CancelRequest) {
        let until = clock::now() + self.longest * 2;
        let attempts = lock(&self.attempts);
        let key = (request.name.clone(), request.entry);
        let is_asked = attempts.get(&key).is_some_and(|it| it.entry_at(node) == request.entry);
        if is_asked || self.holds.attempt_at(node, &request.name, request.entry).is_some() {
            // It has begun meanwhile: the answer to its question says what the node has.
            return;
        }
        let ending = self.nodes[node].begin_end(&request, until);
        drop(attempts);
        self.nodes[node].send_end(request, ending, |_| ());
    }
}
