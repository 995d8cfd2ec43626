//! What the driver has to do, and when: one ordered list for timers, one for held locks.
//!
//! Every held lock has exactly one alarm here: its next renewal, or the end of its lease. There
//! is no task and no timer object per lock.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;

use super::held::Held;
use crate::core::moment::Moment;

/// The least and most urgent things, in order.
#[derive(Default)]
pub(super) struct Agenda {
    timers: BTreeMap<TimerKey, Timer>,
    holds: BTreeSet<Due>,
    last_id: u64,
    planned: Option<Moment>,
}

/// Names a timer, so that it can be taken off.
pub(super) type TimerKey = (Moment, u64);

/// What a timer does.
pub(super) enum Timer {
    /// Wakes a future.
    Wake(Waker),
    /// Makes a line of waiters ask the store again.
    Ask(u64),
}

/// What has come due.
#[derive(Default)]
pub(super) struct Overdue {
    pub(super) wakers: Vec<Waker>,
    pub(super) groups: Vec<u64>,
    pub(super) holds: Vec<Arc<Held>>,
}

impl Agenda {
    /// Adds a timer. True if the driver must be told, because it would sleep too long.
    pub(super) fn add(&mut self, at: Moment, timer: Timer) -> (TimerKey, bool) {
        self.last_id += 1;
        let key = (at, self.last_id);
        self.timers.insert(key, timer);
        (key, self.is_too_late_for(at))
    }

    /// Sets the timer of a future, or changes its waker if it has not come due; the former waker. True if
    /// the driver must be told.
    pub(super) fn wake_at(
        &mut self,
        key: Option<TimerKey>,
        at: Moment,
        waker: Waker,
    ) -> (TimerKey, bool, Option<Timer>) {
        if let Some(key) = key
            && let Some(timer) = self.timers.get_mut(&key)
        {
            return (key, false, Some(std::mem::replace(timer, Timer::Wake(waker))));
        }
        let (key, must_tell) = self.add(at, Timer::Wake(waker));
        (key, must_tell, None)
    }

    /// Takes a timer off.
    pub(super) fn remove(&mut self, key: TimerKey) -> Option<Timer> {
        self.timers.remove(&key)
    }

    /// Sets the one alarm of a held lock. True if the driver must be told.
    pub(super) fn arm(&mut self, held: &Arc<Held>, at: Moment) -> bool {
        self.disarm(held);
        held.set_alarm(at);
        self.holds.insert(Due { at, held: held.clone() });
        self.is_too_late_for(at)
    }

    /// Takes the alarm of a held lock off.
    pub(super) fn disarm(&mut self, held: &Arc<Held>) {
        if let Some(at) = held.take_alarm() {
            self.holds.remove(&Due { at, held: held.clone() });
        }
    }

    /// Takes out everything due at `now`.
    pub(super) fn take_due(&mut self, now: Moment) -> Overdue {
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

    /// Takes out everything, due or not.
    pub(super) fn take_all(&mut self) -> (Vec<Arc<Held>>, Vec<Waker>) {
        let due = self.take_due(Moment::NEVER);
        (due.holds, due.wakers)
    }

    /// Decides when the driver wakes next, no later than `latest`; none when nothing is due ever.
    pub(super) fn plan(&mut self, latest: Moment) -> Option<Moment> {
        let timer = self.timers.first_key_value().map(|((at, _), _)| *at);
        let hold = self.holds.first().map(|due| due.at);
        let next = [timer, hold].into_iter().flatten().min();
        self.planned = next.map(|at| at.min(latest));
        self.planned
    }

    /// All held locks.
    pub(super) fn holds(&self) -> impl Iterator<Item = &Arc<Held>> {
        self.holds.iter().map(|due| &due.held)
    }

    fn is_too_late_for(&mut self, at: Moment) -> bool {
        let too_late = self.planned.is_none_or(|planned| at < planned);
        if too_late {
            self.planned = Some(at);
        }
        too_late
    }
}

/// A held lock and its alarm, ordered by time; the address tells two of the same time apart.
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
