//! The tasks of this process that wait for one lock, behind one place in the store's queue.
//!
//! A line stands in the store's queue under one entry, however many tasks are in it. This file
//! keeps the lists; [`super::serve`] talks to the store, [`super::pass`] hands over locally.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::agenda::TimerKey;
use super::{Driver, Spec};
use crate::core::backoff::Delays;
use crate::core::lease::ClockSync;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::engine::Engine;
use crate::error::{Error, StoreError};
use crate::guard::Guard;
use crate::owner::Entry;
use crate::parking;
use crate::sync::lock;

/// All lines of a driver.
#[derive(Default)]
pub(super) struct WaitGroups {
    pub(super) by_id: HashMap<WaitGroupId, WaitGroup>,
    pub(super) by_entry: HashMap<Entry, WaitGroupId>,
    /// WaitGroups that further tasks may join.
    by_name: HashMap<LockName, WaitGroupId>,
    /// Requests on their way to the store.
    asking: HashMap<Entry, Asking>,
    /// Wake-ups that met no line. One may have come before its line was there.
    pub(super) early_wakeups: u64,
    last_id: u64,
}

/// What has happened while a question is on its way to the store.
///
/// The engine performs the operations of one name in the order in which it was called. So a question
/// whose call has returned is undone by whatever is sent after it. One whose call goes on, on another
/// thread, may be performed at any moment: it is undone after its call has returned.
#[derive(Clone, Copy, Default)]
struct Asking {
    /// There was a reason to ask again, of which its answer may not know.
    is_outdated: bool,
    /// The engine's call has returned; its answer has not come.
    is_put: bool,
    /// Its entry was given up before the engine's call had returned.
    is_given_up: bool,
    /// Its entry is being released, by a call that has not returned.
    is_releasing: bool,
}

/// What the one who has put a question finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// Its answer is wanted.
    Wanted,
    /// Its entry was given up meanwhile: what it did must be undone.
    GivenUp,
    /// Its entry is being released. The release comes first, because it is the one that reports
    /// whether the lock was held; then whoever releases undoes the question.
    Releasing,
}

pub(super) type WaitGroupId = u64;
pub(super) type Outcome = Result<Guard, Error>;

/// One line.
pub(super) struct WaitGroup {
    pub(super) spec: Arc<Spec>,
    /// Its place in the store's queue; none from a grant until it joins again.
    pub(super) entry: Option<Entry>,
    /// The last answer of the store.
    pub(super) clock_sync: ClockSync,
    /// How many losses had met no hold when that was asked.
    pub(super) strays: u64,
    pub(super) tasks: VecDeque<(u64, oneshot::Sender<Outcome>)>,
    pub(super) alarm: Option<TimerKey>,
    pub(super) outage: Option<Outage>,
}

/// StoreError with the store that a line is enduring.
pub(super) struct Outage {
    pub(super) since: Moment,
    pub(super) delays: Delays,
    pub(super) last: StoreError,
}

/// What is left to do for a line that is closed.
#[must_use = "the store still has the group in its queue"]
pub(super) struct Closed {
    pub(super) alarm: Option<TimerKey>,
    pub(super) abandon: Option<(LockName, Entry)>,
    pub(super) tasks: VecDeque<(u64, oneshot::Sender<Outcome>)>,
}

impl WaitGroups {
    /// Opens a line for an entry that the store has queued.
    pub(super) fn open(
        &mut self,
        spec: &Arc<Spec>,
        entry: Entry,
        clock_sync: ClockSync,
        strays: u64,
    ) -> WaitGroupId {
        self.last_id += 1;
        let id = self.last_id;
        let spec = spec.clone();
        if spec.is_shareable() {
            self.by_name.insert(spec.name.clone(), id);
        }
        self.by_entry.insert(entry, id);
        let entry = Some(entry);
        let tasks = VecDeque::new();
        let group = WaitGroup { spec, entry, clock_sync, strays, tasks, alarm: None, outage: None };
        self.by_id.insert(id, group);
        id
    }

    /// A line that a task with this wish may join.
    pub(super) fn joinable(&self, spec: &Spec) -> Option<WaitGroupId> {
        if self.by_name.is_empty() || !spec.is_shareable() {
            return None;
        }
        let id = *self.by_name.get(&spec.name)?;
        let group = self.by_id.get(&id)?;
        group.spec.is_compatible_with(spec.lease, &spec.about).then_some(id)
    }

    /// The line of this name, if others may join it.
    pub(super) fn shared(&self, name: &LockName) -> Option<(WaitGroupId, &WaitGroup)> {
        let id = *self.by_name.get(name)?;
        self.by_id.get(&id).map(|group| (id, group))
    }

    /// Puts a task at the end of a line.
    pub(super) fn add_task(&mut self, driver: &Arc<Driver>, id: WaitGroupId) -> Ticket {
        self.last_id += 1;
        let task = self.last_id;
        let (sender, receiver) = oneshot::channel();
        if let Some(group) = self.by_id.get_mut(&id) {
            group.tasks.push_back((task, sender));
        }
        Ticket { driver: driver.clone(), group: id, task, receiver }
    }

    /// Closes a line if no task is left in it.
    pub(super) fn close_if_empty(&mut self, id: WaitGroupId) -> Option<Closed> {
        self.by_id.get(&id).is_some_and(|group| group.tasks.is_empty()).then(|| self.close(id))?
    }

    /// Closes a line, with whoever is in it.
    pub(super) fn close(&mut self, id: WaitGroupId) -> Option<Closed> {
        let group = self.by_id.remove(&id)?;
        let name = &group.spec.name;
        if self.by_name.get(name) == Some(&id) {
            self.by_name.remove(name);
        }
        if let Some(entry) = group.entry {
            self.by_entry.remove(&entry);
        }
        let standing = group.entry.filter(|&entry| !self.disown(entry));
        let abandon = standing.map(|entry| (name.clone(), entry));
        Some(Closed { alarm: group.alarm, abandon, tasks: group.tasks })
    }

    /// Notes that the engine is called for an entry. False if a question is on its way already, whose
    /// answer comes too early then.
    pub(super) fn start_asking(&mut self, entry: Entry) -> bool {
        match self.asking.entry(entry) {
            std::collections::hash_map::Entry::Occupied(mut asking) => {
                asking.get_mut().is_outdated = true;
                false
            }
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(Asking::default());
                true
            }
        }
    }

    /// Notes that the engine's call has returned.
    pub(super) fn put(&mut self, entry: Entry) -> Put {
        let Some(asking) = self.asking.get_mut(&entry) else { return Put::Wanted };
        asking.is_put = true;
        if asking.is_releasing {
            return Put::Releasing;
        }
        if asking.is_given_up {
            self.asking.remove(&entry);
            return Put::GivenUp;
        }
        Put::Wanted
    }

    /// Notes its answer. True if there was a reason meanwhile to ask again.
    pub(super) fn stop_asking(&mut self, entry: Entry) -> bool {
        self.asking.remove(&entry).is_some_and(|asking| asking.is_outdated)
    }

    /// Gives an entry up. True if the engine is being called for it: whoever does that undoes it.
    fn disown(&mut self, entry: Entry) -> bool {
        match self.asking.get_mut(&entry) {
            Some(asking) if !asking.is_put => {
                asking.is_given_up = true;
                true
            }
            _ => false,
        }
    }

    /// An entry is about to be released. True if the engine is being called for it.
    pub(super) fn start_releasing(&mut self, entry: Entry) -> bool {
        if self.asking.is_empty() || !self.disown(entry) {
            return false;
        }
        self.asking.entry(entry).and_modify(|asking| asking.is_releasing = true);
        true
    }

    /// The call that releases has returned. True if that of the question has, too, which must now be
    /// undone.
    pub(super) fn stop_releasing(&mut self, entry: Entry) -> bool {
        let Some(asking) = self.asking.get_mut(&entry) else { return false };
        asking.is_releasing = false;
        let is_put = asking.is_put;
        if is_put {
            self.asking.remove(&entry);
        }
        is_put
    }
}

/// A task's place in a line. Dropping it leaves the line.
pub(super) struct Ticket {
    driver: Arc<Driver>,
    group: WaitGroupId,
    task: u64,
    receiver: oneshot::Receiver<Outcome>,
}

impl Ticket {
    /// The guard, when it is this task's turn; none if the line was closed without a word.
    pub(super) async fn guard(&mut self) -> Option<Outcome> {
        poll_fn(|context| {
            let polled = Pin::new(&mut self.receiver).poll(context);
            if polled.is_pending() && parking::is_polling() {
                self.driver.engine.await_wakeup();
            }
            polled.map(Result::ok)
        })
        .await
    }

    /// What was sent before now. Nothing can be sent after this.
    pub(super) fn last_chance(&mut self) -> Option<Outcome> {
        self.receiver.close();
        self.receiver.try_recv().ok()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.driver.is_inherited() {
            return;
        }
        let mut groups = lock(&self.driver.groups);
        let Some(group) = groups.by_id.get_mut(&self.group) else {
            return;
        };
        // Tasks are in the order in which they came, and so are their numbers.
        let at = group.tasks.binary_search_by_key(&self.task, |(task, _)| *task);
        let sender = at.ok().and_then(|at| group.tasks.remove(at));
        let closed = groups.close_if_empty(self.group);
        drop(groups);
        // It wakes the receiver, which is foreign code.
        drop(sender);
        self.driver.clear(closed);
    }
}
