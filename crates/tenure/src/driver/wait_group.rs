//! Wait groups: the tasks of this process that wait for one lock, behind one entry in the store's queue.
//!
//! A group has one entry in that queue, however many tasks are in it. This file keeps the groups;
//! [`super::serve`] connects them to the store, [`super::pass`] hands over between their tasks.
//!
//! Lock order: the groups' mutex before the agenda's. While either is held, no engine is called, no guard
//! is dropped and no foreign code runs; the agenda wakes only the driver's own thread.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;

use super::agenda::Agenda;
use super::{Held, Spec, foreign};
use crate::core::name::LockName;
use crate::error::StoreError;
use crate::guard::Guard;
use crate::owner::Entry;
use crate::sync::lock;

mod questions;
mod table;
mod ticket;

pub(super) use questions::Sent;
use table::Table;
pub(super) use table::{Basis, Closed, Member, Outcome, WaitGroupId};
pub(super) use ticket::Ticket;

/// All wait groups of a driver.
#[derive(Default)]
pub(super) struct WaitGroups {
    table: Mutex<Table>,
}

/// How a queued entry became a group.
pub(super) enum Opened {
    /// It is a new group's. `is_outdated`: a wake-up may have been missed since the store was asked.
    New { member: Member, is_outdated: bool },
    /// Another task had opened a group meanwhile: the entry is not needed.
    Joined(Member),
}

/// A question that a group is about to put to the store.
pub(super) struct Question {
    pub(super) group: WaitGroupId,
    pub(super) entry: Entry,
    pub(super) spec: Arc<Spec>,
}

/// What follows from the answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The grant is for a task of the group.
    Serve,
    /// The group asks at once.
    Ask,
    /// The group waits.
    Wait,
    /// The entry was released or cancelled. If the store has performed the question after that, it must be undone.
    Undo,
}

impl Next {
    /// What follows if no group wants the answer.
    fn unwanted(is_ended: bool) -> Self {
        if is_ended { Self::Undo } else { Self::Wait }
    }
}

impl WaitGroups {
    /// How many wake-ups have matched no group so far. To be read before the store is asked.
    pub(super) fn early_wakeups(&self) -> u64 {
        lock(&self.table).early_wakeups
    }

    /// Adds a task to a group that waits for the same lock with the same options, if there is one.
    pub(super) fn join(&self, spec: &Spec) -> Option<Member> {
        let mut table = lock(&self.table);
        let id = table.joinable(spec)?;
        Some(table.add_task(id))
    }

    /// Opens a group for an entry that the store has queued; it asks again after `delay`.
    pub(super) fn open(
        &self,
        spec: &Arc<Spec>,
        entry: Entry,
        basis: Basis,
        early_wakeups: u64,
        delay: Duration,
        agenda: &Agenda,
    ) -> Opened {
        let mut table = lock(&self.table);
        if let Some(id) = table.joinable(spec) {
            return Opened::Joined(table.add_task(id));
        }
        let id = table.open(spec, entry, basis);
        let member = table.add_task(id);
        let is_outdated = table.early_wakeups != early_wakeups;
        table.schedule(id, delay, agenda);
        Opened::New { member, is_outdated }
    }

    /// Removes a task. The caller drops the sender and clears the group, if it was the last.
    pub(super) fn leave(
        &self,
        member: &Member,
    ) -> (Option<oneshot::Sender<Outcome>>, Option<Closed>) {
        let mut table = lock(&self.table);
        let Some(group) = table.by_id.get_mut(&member.group) else { return (None, None) };
        // Tasks are in the order of their arrival, and so are their numbers.
        let at = group.tasks.binary_search_by_key(&member.task, |(task, _)| *task);
        let removed = at.ok().and_then(|at| group.tasks.remove(at));
        (removed.map(|(_, sender)| sender), table.close_if_empty(member.group))
    }

    /// The group under an entry. If there is none, the wake-up that this call is about is counted in
    /// [`WaitGroups::early_wakeups`].
    pub(super) fn woken(&self, entry: Entry) -> Option<(WaitGroupId, Basis)> {
        let mut table = lock(&self.table);
        let id = table.by_entry.get(&entry).copied();
        let found = id.and_then(|id| Some((id, table.by_id.get(&id)?.basis)));
        if found.is_none() {
            // Early, or given up. Early: `open` sees the count. Given up: a cancel is in flight.
            table.early_wakeups += 1;
        }
        found
    }

    /// All groups, after wake-ups may have been missed, also by a group that is about to open.
    pub(super) fn missed_wakeups(
        &self,
        is_affected: &impl Fn(&LockName) -> bool,
    ) -> Vec<WaitGroupId> {
        let mut table = lock(&self.table);
        table.early_wakeups += 1;
        let affected = table.by_id.iter().filter(|(_, group)| is_affected(&group.spec.name));
        affected.map(|(id, _)| *id).collect()
    }

    /// The groups whose last question failed.
    pub(super) fn failing(&self) -> Vec<WaitGroupId> {
        let table = lock(&self.table);
        let failing = table.by_id.iter().filter(|(_, group)| group.outage.is_some());
        failing.map(|(id, _)| *id).collect()
    }

    /// The groups that wait for a lock which may be free, in the order in which they were opened.
    pub(super) fn freed(&self, name: &LockName) -> Vec<WaitGroupId> {
        let mut table = lock(&self.table);
        // Another group may be about to open.
        table.early_wakeups += 1;
        table.of_name(name).collect()
    }

    /// Takes the grant of an entry for its group, once: the same grant may be reported twice.
    pub(super) fn take_grant(&self, entry: Entry) -> Option<(WaitGroupId, Arc<Spec>)> {
        let mut table = lock(&self.table);
        let id = table.by_entry.remove(&entry)?;
        let group = table.by_id.get_mut(&id)?;
        group.entry = None;
        group.outage = None;
        Some((id, group.spec.clone()))
    }

    /// Sends a guard to the first task of a group that still wants it, or returns it.
    pub(super) fn give(&self, id: WaitGroupId, mut guard: Guard) -> Option<Guard> {
        loop {
            let next = lock(&self.table).by_id.get_mut(&id).and_then(|it| it.tasks.pop_front());
            let Some((_, task)) = next else {
                return Some(guard);
            };
            // The guard is stored before its receiver is woken, so a waker that panics does not lose it.
            match foreign::call(|| task.send(Ok(guard))) {
                Some(Err(Ok(unwanted))) => guard = unwanted,
                _ => return None,
            }
        }
    }

    /// After a grant: a new entry for the remaining tasks. The error is the group, if none remain.
    pub(super) fn renew_entry(&self, id: WaitGroupId) -> Result<(), Option<Closed>> {
        let mut table = lock(&self.table);
        let closed = table.close_if_empty(id);
        let Some(group) = table.by_id.get_mut(&id) else { return Err(closed) };
        let entry = Entry::single();
        group.entry = Some(entry);
        table.by_entry.insert(entry, id);
        Ok(())
    }

    /// The group to which a hold may be handed over locally.
    pub(super) fn successors(&self, held: &Held) -> Option<WaitGroupId> {
        lock(&self.table).compatible(&held.name, held.options())
    }

    /// Closes a group if no task is left in it.
    pub(super) fn close_if_empty(&self, id: WaitGroupId) -> Option<Closed> {
        lock(&self.table).close_if_empty(id)
    }

    /// Closes every group.
    pub(super) fn close_all(&self) -> Vec<Closed> {
        let mut table = lock(&self.table);
        let ids: Vec<_> = table.by_id.keys().copied().collect();
        ids.into_iter().filter_map(|id| table.close(id)).collect()
    }
}

/// Questions and their answers.
impl WaitGroups {
    /// A question for a group; none if it has left the queue, or a question is in flight already.
    pub(super) fn start_asking(&self, id: WaitGroupId) -> Option<Question> {
        let mut table = lock(&self.table);
        let group = table.by_id.get(&id)?;
        let (entry, spec) = (group.entry?, group.spec.clone());
        table.questions.start(entry).then_some(Question { group: id, entry, spec })
    }

    /// The engine's call for a question has returned.
    pub(super) fn sent(&self, entry: Entry) -> Sent {
        lock(&self.table).questions.sent(entry)
    }

    /// An entry is about to be released. True if the engine is being called for it.
    pub(super) fn start_releasing(&self, entry: Entry) -> bool {
        lock(&self.table).questions.start_releasing(entry)
    }

    /// The call that releases has returned. True if a question must now be undone.
    pub(super) fn stop_releasing(&self, entry: Entry) -> bool {
        lock(&self.table).questions.stop_releasing(entry)
    }

    /// The store has granted.
    pub(super) fn answered_granted(&self, question: &Question) -> Next {
        lock(&self.table).answered(question).map_or_else(Next::unwanted, |_| Next::Serve)
    }

    /// The store has queued the entry; the group asks again after `delay`, if not at once.
    pub(super) fn answered_queued(
        &self,
        question: &Question,
        basis: Basis,
        delay: Duration,
        agenda: &Agenda,
    ) -> Next {
        let mut table = lock(&self.table);
        let (group, is_outdated) = match table.answered(question) {
            Ok(answered) => answered,
            Err(is_ended) => return Next::unwanted(is_ended),
        };
        group.basis = basis;
        group.outage = None;
        table.schedule(question.group, delay, agenda);
        if is_outdated { Next::Ask } else { Next::Wait }
    }

    /// The store has neither granted nor queued; the group asks again after `delay`.
    pub(super) fn answered_busy(&self, question: &Question, delay: Duration, agenda: &Agenda) {
        let mut table = lock(&self.table);
        if table.answered(question).is_ok() {
            table.schedule(question.group, delay, agenda);
        }
    }

    /// The store has refused for good: closes the group, if it still wants the answer.
    pub(super) fn answered_refused(&self, question: &Question) -> Option<Closed> {
        let mut table = lock(&self.table);
        table.answered(question).ok()?;
        table.close(question.group)
    }

    /// The store could not answer: the group retries for as long as `patience` lasts, and is closed then.
    pub(super) fn answered_error(
        &self,
        question: &Question,
        error: StoreError,
        patience: Duration,
        agenda: &Agenda,
    ) -> Option<(Closed, StoreError)> {
        let mut table = lock(&self.table);
        let (group, is_outdated) = table.answered(question).ok()?;
        match group.retry_after(error, patience) {
            Ok(delay) => {
                // A return of the store while the question failed is a reason to ask again at once.
                let delay = if is_outdated { Duration::ZERO } else { delay };
                table.schedule(question.group, delay, agenda);
                None
            }
            Err(error) => Some((table.close(question.group)?, error)),
        }
    }
}
