//! The groups themselves, without a mutex.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Question;
use super::questions::{Meanwhile, Questions};
use crate::clock;
use crate::core::backoff::Delays;
use crate::core::lease::ClockSync;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::driver::agenda::{Agenda, TimerKey};
use crate::driver::spec::HoldOptions;
use crate::driver::{AFTER_ERROR, Spec, foreign};
use crate::error::{Error, StoreError};
use crate::guard::Guard;
use crate::owner::Entry;

#[derive(Default)]
pub(super) struct Table {
    pub(super) by_id: HashMap<WaitGroupId, WaitGroup>,
    pub(super) by_entry: HashMap<Entry, WaitGroupId>,
    /// Groups that further tasks may join.
    by_name: HashMap<LockName, WaitGroupId>,
    /// All groups of each lock.
    all_by_name: HashMap<LockName, BTreeSet<WaitGroupId>>,
    pub(super) questions: Questions,
    /// Wake-ups that matched no group. One may have arrived before its group was opened.
    pub(super) early_wakeups: u64,
    last_id: u64,
}

pub(in crate::driver) type WaitGroupId = u64;
pub(in crate::driver) type Outcome = Result<Guard, Error>;

pub(super) struct WaitGroup {
    pub(super) spec: Arc<Spec>,
    /// Its entry in the store's queue; none from a grant until it joins again.
    pub(super) entry: Option<Entry>,
    pub(super) basis: Basis,
    pub(super) tasks: VecDeque<(u64, oneshot::Sender<Outcome>)>,
    alarm: Option<TimerKey>,
    pub(super) outage: Option<Outage>,
}

/// When the store last answered a group, and how many losses had matched no hold when it was asked.
#[derive(Clone, Copy)]
pub(in crate::driver) struct Basis {
    pub(in crate::driver) clock_sync: ClockSync,
    pub(in crate::driver) losses: u64,
}

/// Errors of the store that a group retries.
pub(super) struct Outage {
    since: Moment,
    delays: Delays,
    last: StoreError,
}

/// One task in a group, and the receiving end of its outcome.
pub(in crate::driver) struct Member {
    pub(in crate::driver) group: WaitGroupId,
    pub(super) task: u64,
    pub(in crate::driver) receiver: oneshot::Receiver<Outcome>,
}

/// What remains to be done for a closed group.
#[must_use = "the store still has the group in its queue"]
pub(in crate::driver) struct Closed {
    pub(in crate::driver) alarm: Option<TimerKey>,
    pub(in crate::driver) abandon: Option<(LockName, Entry)>,
    tasks: VecDeque<(u64, oneshot::Sender<Outcome>)>,
}

impl Table {
    pub(super) fn open(&mut self, spec: &Arc<Spec>, entry: Entry, basis: Basis) -> WaitGroupId {
        self.last_id += 1;
        let id = self.last_id;
        let spec = spec.clone();
        if spec.is_shareable() {
            self.by_name.insert(spec.name.clone(), id);
        }
        self.by_entry.insert(entry, id);
        self.all_by_name.entry(spec.name.clone()).or_default().insert(id);
        let (entry, tasks) = (Some(entry), VecDeque::new());
        let group = WaitGroup { spec, entry, basis, tasks, alarm: None, outage: None };
        self.by_id.insert(id, group);
        id
    }

    /// A group that a task with these options may join.
    pub(super) fn joinable(&self, spec: &Spec) -> Option<WaitGroupId> {
        if self.by_name.is_empty() || !spec.is_shareable() {
            return None;
        }
        self.compatible(&spec.name, spec.hold_options())
    }

    pub(super) fn compatible(
        &self,
        name: &LockName,
        options: HoldOptions<'_>,
    ) -> Option<WaitGroupId> {
        let id = *self.by_name.get(name)?;
        self.by_id.get(&id)?.spec.is_compatible_with(options).then_some(id)
    }

    /// The groups of a lock, in the order in which they were opened.
    pub(super) fn of_name(&self, name: &LockName) -> impl Iterator<Item = WaitGroupId> {
        self.all_by_name.get(name).into_iter().flatten().copied()
    }

    pub(super) fn add_task(&mut self, id: WaitGroupId) -> Member {
        self.last_id += 1;
        let task = self.last_id;
        let (sender, receiver) = oneshot::channel();
        if let Some(group) = self.by_id.get_mut(&id) {
            group.tasks.push_back((task, sender));
        }
        Member { group: id, task, receiver }
    }

    pub(super) fn close_if_empty(&mut self, id: WaitGroupId) -> Option<Closed> {
        self.by_id.get(&id).is_some_and(|group| group.tasks.is_empty()).then(|| self.close(id))?
    }

    pub(super) fn close(&mut self, id: WaitGroupId) -> Option<Closed> {
        let group = self.by_id.remove(&id)?;
        let name = &group.spec.name;
        if self.by_name.get(name) == Some(&id) {
            self.by_name.remove(name);
        }
        if let Some(all) = self.all_by_name.get_mut(name) {
            all.remove(&id);
            if all.is_empty() {
                self.all_by_name.remove(name);
            }
        }
        if let Some(entry) = group.entry {
            self.by_entry.remove(&entry);
        }
        let queued = group.entry.filter(|&entry| !self.questions.give_up(entry));
        let abandon = queued.map(|entry| (name.clone(), entry));
        Some(Closed { alarm: group.alarm, abandon, tasks: group.tasks })
    }

    /// Sets the one alarm of a group.
    pub(super) fn schedule(&mut self, id: WaitGroupId, delay: Duration, agenda: &Agenda) {
        if let Some(group) = self.by_id.get_mut(&id) {
            group.alarm = Some(agenda.ask_at(group.alarm, clock::now() + delay, id));
        }
    }

    /// Notes an answer. Returns the group that asked, and whether there was a reason meanwhile to ask
    /// again; if a wake-up was faster or all tasks have left, whether a release or a cancel has followed.
    pub(super) fn answered(&mut self, question: &Question) -> Result<(&mut WaitGroup, bool), bool> {
        let Meanwhile { is_outdated, is_ended } = self.questions.answered(question.entry);
        let group = self.by_id.get_mut(&question.group);
        let group = group.filter(|group| group.entry == Some(question.entry)).ok_or(is_ended)?;
        Ok((group, is_outdated))
    }
}

impl WaitGroup {
    /// The delay before the next attempt, or the error itself when patience is exhausted.
    pub(super) fn retry_after(
        &mut self,
        error: StoreError,
        patience: Duration,
    ) -> Result<Duration, StoreError> {
        let now = clock::now();
        let outage = self.outage.get_or_insert_with(|| Outage {
            since: now,
            delays: AFTER_ERROR.delays(now.as_micros()),
            last: error.clone(),
        });
        // The entry may be in the queue already, so an unknown outcome stays unknown.
        outage.last = error.after(Some(&outage.last));
        if now.since(outage.since) < patience && !outage.last.is_lasting() {
            Ok(outage.delays.next())
        } else {
            Err(outage.last.clone())
        }
    }
}

impl Closed {
    /// Sends an error to every task of the closed group.
    pub(in crate::driver) fn fail(&mut self, error: &Error) {
        for (_, task) in std::mem::take(&mut self.tasks) {
            foreign::call(|| drop(task.send(Err(error.clone()))));
        }
    }
}
