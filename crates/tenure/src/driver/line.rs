//! The tasks of this process that wait for one lock, behind one place in the store's queue.
//!
//! A line stands in the store's queue under one entry, however many tasks are in it. This file
//! keeps the lists; [`super::serve`] talks to the store, [`super::pass`] hands over locally.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::agenda::TimerKey;
use super::{Driver, Spec};
use crate::core::backoff::Delays;
use crate::core::lease::Tie;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::error::{Error, Trouble};
use crate::guard::Guard;
use crate::owner::Entry;
use crate::sync::lock;

/// All lines of a driver.
#[derive(Default)]
pub(super) struct Lines {
    pub(super) by_id: HashMap<LineId, Line>,
    pub(super) by_entry: HashMap<Entry, LineId>,
    /// Lines that further tasks may join.
    by_name: HashMap<LockName, LineId>,
    /// Requests on their way to the store.
    asking: HashMap<Entry, Asking>,
    /// Wake-ups that met no line. One may have come before its line was there.
    pub(super) unclaimed: u64,
    last_id: u64,
}

/// What has happened while a request is on its way to the store.
#[derive(Clone, Copy, Default)]
pub(super) struct Asking {
    /// Its entry has been given up.
    pub(super) is_given_up: bool,
    /// There was a reason to ask again, of which its answer may not know.
    pub(super) is_outdated: bool,
}

pub(super) type LineId = u64;
pub(super) type Outcome = Result<Guard, Error>;

/// One line.
pub(super) struct Line {
    pub(super) spec: Arc<Spec>,
    /// Its place in the store's queue; none from a grant until it joins again.
    pub(super) entry: Option<Entry>,
    /// The last answer of the store.
    pub(super) tie: Tie,
    pub(super) tasks: VecDeque<(u64, oneshot::Sender<Outcome>)>,
    pub(super) alarm: Option<TimerKey>,
    pub(super) ordeal: Option<Ordeal>,
}

/// Trouble with the store that a line is enduring.
pub(super) struct Ordeal {
    pub(super) since: Moment,
    pub(super) delays: Delays,
    pub(super) last: Trouble,
}

/// What is left to do for a line that is closed.
#[must_use = "the store still has the line in its queue"]
pub(super) struct Closed {
    pub(super) alarm: Option<TimerKey>,
    pub(super) abandon: Option<(LockName, Entry)>,
    pub(super) tasks: VecDeque<(u64, oneshot::Sender<Outcome>)>,
}

impl Lines {
    /// Opens a line for an entry that the store has queued.
    pub(super) fn open(&mut self, spec: &Arc<Spec>, entry: Entry, tie: Tie) -> LineId {
        self.last_id += 1;
        let id = self.last_id;
        let spec = spec.clone();
        if spec.is_shareable() {
            self.by_name.insert(spec.name.clone(), id);
        }
        self.by_entry.insert(entry, id);
        let entry = Some(entry);
        let line = Line { spec, entry, tie, tasks: VecDeque::new(), alarm: None, ordeal: None };
        self.by_id.insert(id, line);
        id
    }

    /// A line that a task with this wish may join.
    pub(super) fn joinable(&self, spec: &Spec) -> Option<LineId> {
        if self.by_name.is_empty() || !spec.is_shareable() {
            return None;
        }
        let id = *self.by_name.get(&spec.name)?;
        let line = self.by_id.get(&id)?;
        line.spec.agrees_with(spec.lease, &spec.about).then_some(id)
    }

    /// The line of this name, if others may join it.
    pub(super) fn shared(&self, name: &LockName) -> Option<(LineId, &Line)> {
        let id = *self.by_name.get(name)?;
        self.by_id.get(&id).map(|line| (id, line))
    }

    /// Puts a task at the end of a line.
    pub(super) fn add_task(&mut self, driver: &Arc<Driver>, id: LineId) -> Place {
        self.last_id += 1;
        let task = self.last_id;
        let (sender, receiver) = oneshot::channel();
        if let Some(line) = self.by_id.get_mut(&id) {
            line.tasks.push_back((task, sender));
        }
        Place { driver: driver.clone(), line: id, task, receiver }
    }

    /// Closes a line if no task is left in it.
    pub(super) fn close_if_empty(&mut self, id: LineId) -> Option<Closed> {
        self.by_id.get(&id).is_some_and(|line| line.tasks.is_empty()).then(|| self.close(id))?
    }

    /// Closes a line, with whoever is in it.
    pub(super) fn close(&mut self, id: LineId) -> Option<Closed> {
        let line = self.by_id.remove(&id)?;
        let name = &line.spec.name;
        if self.by_name.get(name) == Some(&id) {
            self.by_name.remove(name);
        }
        if let Some(entry) = line.entry {
            self.by_entry.remove(&entry);
        }
        let standing = line.entry.filter(|&entry| !self.disown(entry));
        let abandon = standing.map(|entry| (name.clone(), entry));
        Some(Closed { alarm: line.alarm, abandon, tasks: line.tasks })
    }

    /// Notes that a request for an entry is on its way. False if one is already, whose answer comes too
    /// early then.
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

    /// Notes its answer. If the entry was given up meanwhile, it must now be undone.
    pub(super) fn stop_asking(&mut self, entry: Entry) -> Asking {
        self.asking.remove(&entry).unwrap_or_default()
    }

    /// Gives an entry up. True if a request for it is on its way, which might arrive after
    /// whatever we send now, and whose answer therefore undoes it.
    pub(super) fn disown(&mut self, entry: Entry) -> bool {
        if self.asking.is_empty() {
            return false;
        }
        self.asking.get_mut(&entry).map(|asking| asking.is_given_up = true).is_some()
    }
}

/// A task's place in a line. Dropping it leaves the line.
pub(super) struct Place {
    driver: Arc<Driver>,
    line: LineId,
    task: u64,
    receiver: oneshot::Receiver<Outcome>,
}

impl Place {
    /// The guard, when it is this task's turn; none if the line was closed without a word.
    pub(super) async fn guard(&mut self) -> Option<Outcome> {
        (&mut self.receiver).await.ok()
    }

    /// What was sent before now. Nothing can be sent after this.
    pub(super) fn last_chance(&mut self) -> Option<Outcome> {
        self.receiver.close();
        self.receiver.try_recv().ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = lock(&self.driver.lines);
        let Some(line) = lines.by_id.get_mut(&self.line) else {
            return;
        };
        // Tasks are in the order in which they came, and so are their numbers.
        if let Ok(at) = line.tasks.binary_search_by_key(&self.task, |(task, _)| *task) {
            line.tasks.remove(at);
        }
        let closed = lines.close_if_empty(self.line);
        drop(lines);
        self.driver.clear(closed);
    }
}
