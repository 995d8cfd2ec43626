//! What the driver has to do, and when: one ordered list of timers and one of held locks.
//!
//! Every held lock has exactly one alarm here: its next renewal, or the end of its lease. There
//! is no task and no timer object per lock.
//!
//! Lock order: the agenda's mutex is the innermost one. The wait groups take it while they hold theirs;
//! no method here calls an engine, drops a guard or runs foreign code while it is held.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{self, AtomicU64};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use tokio::sync::Notify;

use super::held::Held;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::error::WhyLost;
use crate::owner::Owner;
use crate::sync::lock;

/// The driver's timers and held locks, ordered by time.
#[derive(Default)]
pub(super) struct Agenda {
    entries: Mutex<Entries>,
    /// Wakes the driver's thread, and nothing else.
    bell: Arc<Notify>,
    /// How many losses were reported. One may have arrived before a hold that it concerns was armed.
    losses: AtomicU64,
}

#[derive(Default)]
struct Entries {
    timers: BTreeMap<TimerKey, Timer>,
    holds: BTreeSet<Due>,
    last_id: u64,
    planned: Option<Moment>,
}

/// Identifies a timer, so that it can be removed.
pub(super) type TimerKey = (Moment, u64);

/// What a timer does.
pub(super) enum Timer {
    /// Wakes a future.
    Wake(Waker),
    /// Makes a wait group ask the store again.
    Ask(u64),
}

/// Everything that has come due.
#[derive(Default)]
pub(super) struct Overdue {
    pub(super) wakers: Vec<Waker>,
    pub(super) groups: Vec<u64>,
    pub(super) holds: Vec<Arc<Held>>,
}

impl Agenda {
    /// The bell that wakes the driver's thread.
    pub(super) fn bell(&self) -> Arc<Notify> {
        self.bell.clone()
    }

    /// Wakes the driver's thread.
    pub(super) fn ring(&self) {
        self.bell.notify_one();
    }

    /// Sets the timer of a future, or replaces its waker if it has not come due. Returns the former waker,
    /// for the caller to drop.
    pub(super) fn wake_at(
        &self,
        key: Option<TimerKey>,
        at: Moment,
        waker: Waker,
    ) -> (TimerKey, Option<Timer>) {
        let mut entries = lock(&self.entries);
        if let Some(key) = key
            && let Some(timer) = entries.timers.get_mut(&key)
        {
            return (key, Some(std::mem::replace(timer, Timer::Wake(waker))));
        }
        let (key, must_ring) = entries.add(at, Timer::Wake(waker));
        drop(entries);
        if must_ring {
            self.ring();
        }
        (key, None)
    }

    /// Sets the one alarm of a wait group; `former` is the alarm that it replaces.
    pub(super) fn ask_at(&self, former: Option<TimerKey>, at: Moment, group: u64) -> TimerKey {
        let mut entries = lock(&self.entries);
        if let Some(former) = former {
            entries.timers.remove(&former);
        }
        let (key, must_ring) = entries.add(at, Timer::Ask(group));
        drop(entries);
        if must_ring {
            self.ring();
        }
        key
    }

    /// Removes a timer.
    pub(super) fn remove(&self, key: TimerKey) -> Option<Timer> {
        lock(&self.entries).timers.remove(&key)
    }

    /// Sets the one alarm of a lock, if it is still held.
    pub(super) fn arm(&self, held: &Arc<Held>, at: Moment) {
        let mut entries = lock(&self.entries);
        let must_ring = held.is_held() && entries.arm(held, at);
        drop(entries);
        if must_ring {
            self.ring();
        }
    }

    /// Marks a hold as lost and removes its alarm. False if it was not held.
    pub(super) fn lose(&self, held: &Arc<Held>, why: WhyLost) -> bool {
        let mut entries = lock(&self.entries);
        let was_held = held.set_lost(why);
        if was_held {
            entries.disarm(held);
        }
        was_held
    }

    /// Marks a hold as finished and removes its alarm. False if it was lost or finished before.
    pub(super) fn finish(&self, held: &Arc<Held>) -> bool {
        let mut entries = lock(&self.entries);
        entries.disarm(held);
        held.set_finished()
    }

    /// Removes and returns everything due at `now`.
    pub(super) fn take_due(&self, now: Moment) -> Overdue {
        lock(&self.entries).take_due(now)
    }

    /// Removes and returns everything, due or not.
    pub(super) fn take_all(&self) -> Overdue {
        self.take_due(Moment::NEVER)
    }

    /// Decides when the driver wakes next, no later than `latest`; none if the agenda is empty.
    pub(super) fn plan(&self, latest: Moment) -> Option<Moment> {
        lock(&self.entries).plan(latest)
    }

    /// All held locks.
    pub(super) fn holds(&self) -> Vec<Arc<Held>> {
        lock(&self.entries).holds.iter().map(|due| due.held.clone()).collect()
    }

    /// The holds of one owner on one lock, which it has lost.
    pub(super) fn holds_lost(&self, name: &LockName, owner: Owner) -> Vec<Arc<Held>> {
        let is_match = |held: &&Arc<Held>| held.entry.owner == owner && held.name == *name;
        // Rare, so a scan is cheaper than an index.
        let entries = lock(&self.entries);
        let holds = entries.holds.iter().map(|due| &due.held);
        let lost = holds.filter(is_match).cloned().collect();
        // Another hold of the owner may be armed later: `Driver::hold` sees the count then, because both happen under this mutex.
        self.losses.fetch_add(1, atomic::Ordering::AcqRel);
        lost
    }

    /// How many losses there were so far. To be read before the store is asked.
    pub(super) fn losses(&self) -> u64 {
        self.losses.load(atomic::Ordering::Acquire)
    }
}

impl Entries {
    /// Adds a timer. True if the driver's thread must be woken, because it would sleep too long.
    fn add(&mut self, at: Moment, timer: Timer) -> (TimerKey, bool) {
        self.last_id += 1;
        let key = (at, self.last_id);
        self.timers.insert(key, timer);
        (key, self.is_too_late_for(at))
    }

    /// Sets the one alarm of a held lock. True if the driver's thread must be woken.
    fn arm(&mut self, held: &Arc<Held>, at: Moment) -> bool {
        self.disarm(held);
        held.set_alarm(at);
        self.holds.insert(Due { at, held: held.clone() });
        self.is_too_late_for(at)
    }

    fn disarm(&mut self, held: &Arc<Held>) {
        if let Some(at) = held.take_alarm() {
            self.holds.remove(&Due { at, held: held.clone() });
        }
    }

    fn take_due(&mut self, now: Moment) -> Overdue {
        let mut due = Overdue::default();
        while let Some(entry) = self.timers.first_entry().filter(|entry| entry.key().0 <= now) {
            match entry.remove() {
                Timer::Wake(waker) => due.wakers.push(waker),
                Timer::Ask(group) => due.groups.push(group),
            }
        }
        while self.holds.first().is_some_and(|first| first.at <= now) {
            if let Some(Due { held, .. }) = self.holds.pop_first() {
                held.take_alarm();
                due.holds.push(held);
            }
        }
        due
    }

    fn plan(&mut self, latest: Moment) -> Option<Moment> {
        let timer = self.timers.first_key_value().map(|((at, _), _)| *at);
        let hold = self.holds.first().map(|due| due.at);
        let next = [timer, hold].into_iter().flatten().min();
        self.planned = next.map(|at| at.min(latest));
        self.planned
    }

    fn is_too_late_for(&mut self, at: Moment) -> bool {
        let too_late = self.planned.is_none_or(|planned| at < planned);
        if too_late {
            self.planned = Some(at);
        }
        too_late
    }
}

/// A held lock and its alarm, ordered by time; the address distinguishes two of the same time.
struct Due {
    at: Moment,
    held: Arc<Held>,
}

impl Due {
    fn order(&self) -> (Moment, *const Held) {
        (self.at, Arc::as_ptr(&self.held))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}
