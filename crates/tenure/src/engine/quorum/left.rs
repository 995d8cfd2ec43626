//! What a node is still to end, because it has not confirmed it (I6), or because another copy of the request may still arrive:
//! then nothing that this node grants to the entry lasts for certain (I1).

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::owner::{Entry, unique_number};
use crate::sync::lock;

/// How many entries are remembered. Without a reminder they end with their leases.
const MOST: usize = 10_000;

/// How many ends are repeated at a time.
const REPEATED: usize = 128;

type Key = (LockName, Entry);

#[derive(Default)]
pub(super) struct Leftovers {
    notes: Mutex<HashMap<Key, Left>>,
    /// There were more than are remembered, so that any end may still come.
    has_forgotten: AtomicBool,
}

/// An entry that this client has ended, and the node may still have.
#[derive(Clone, Copy)]
pub(super) struct Left {
    /// Which note of this entry it is: an earlier one may be over, and an end of it unanswered.
    id: u64,
    /// How many permits it keeps: zero if it has ended.
    pub(super) keep: u32,
    /// By then it has ended by itself.
    until: Moment,
    /// The permits stay occupied until then, although it has ended.
    pub(super) lingers_until: Option<Moment>,
    /// How many ends were sent, and how many of them are not answered.
    sent: u32,
    in_flight: u32,
    /// The node has confirmed the last one.
    is_done: bool,
    /// One was not confirmed. It may still arrive, on a connection that was given up, whatever is confirmed meanwhile.
    may_arrive: bool,
}

/// An end that is being sent.
#[derive(Clone, Copy)]
pub(super) struct Ending {
    id: u64,
    number: u32,
    keep: u32,
}

impl Left {
    fn new(keep: u32, until: Moment) -> Self {
        Self {
            id: unique_number(),
            keep,
            until,
            lingers_until: None,
            sent: 0,
            in_flight: 0,
            is_done: false,
            may_arrive: false,
        }
    }

    fn send(&mut self) -> Ending {
        self.sent += 1;
        self.in_flight += 1;
        Ending { id: self.id, number: self.sent, keep: self.keep }
    }

    /// An end was answered. True if all of them were confirmed, so that none can arrive any more.
    fn answered(&mut self, ending: Ending, is_confirmed: bool) -> bool {
        self.in_flight -= 1;
        self.may_arrive |= !is_confirmed;
        if ending.number == self.sent {
            // It may have ended meanwhile, which the node does not know.
            self.is_done = is_confirmed && ending.keep == self.keep;
        }
        self.in_flight == 0 && !self.may_arrive
    }
}

impl Leftovers {
    pub(super) fn has_forgotten(&self) -> bool {
        self.has_forgotten.load(Ordering::Relaxed)
    }

    pub(super) fn is_ending(&self, name: &LockName, entry: Entry) -> bool {
        let notes = lock(&self.notes);
        !notes.is_empty() && notes.get(&(name.clone(), entry)).is_some_and(|it| it.keep == 0)
    }

    /// An end that was sent was not confirmed, or is to be sent: it is repeated later, and a copy may arrive.
    pub(super) fn note(&self, key: Key, keep: u32, lingers_until: Option<Moment>, until: Moment) {
        self.change(key, keep, until, |it| {
            (it.lingers_until, it.may_arrive) = (lingers_until, true);
        });
    }

    /// An end is being sent. None if there is no room to note it.
    pub(super) fn begin(&self, key: &Key, until: Moment) -> Option<Ending> {
        self.change(key.clone(), 0, until, |it| {
            it.lingers_until = None;
            it.send()
        })
    }

    fn change<T>(
        &self,
        key: Key,
        keep: u32,
        until: Moment,
        change: impl FnOnce(&mut Left) -> T,
    ) -> Option<T> {
        let mut notes = lock(&self.notes);
        if notes.len() >= MOST && !notes.contains_key(&key) {
            self.has_forgotten.store(true, Ordering::Relaxed);
            return None;
        }
        let it = notes.entry(key).or_insert_with(|| Left::new(keep, until));
        // What has ended keeps nothing, whatever was sent before.
        (it.keep, it.until) = (it.keep.min(keep), it.until.max(until));
        it.is_done = false;
        Some(change(it))
    }

    pub(super) fn answered(&self, key: &Key, ending: Option<Ending>, is_confirmed: bool) {
        let Some(ending) = ending else { return };
        let mut notes = lock(&self.notes);
        let note = notes.get_mut(key).filter(|it| it.id == ending.id);
        if note.is_some_and(|it| it.answered(ending, is_confirmed)) {
            notes.remove(key);
        }
    }

    /// What is to be repeated now. Forgets what has ended by itself.
    pub(super) fn due(&self, now: Moment) -> Vec<(Key, Left, Ending)> {
        let mut notes = lock(&self.notes);
        notes.retain(|_, it| it.until > now);
        if notes.is_empty() {
            self.has_forgotten.store(false, Ordering::Relaxed);
        }
        let due = notes.iter_mut().filter(|(_, it)| it.in_flight == 0 && !it.is_done);
        let due = due.take(REPEATED).map(|(key, it)| {
            let ending = it.send();
            (key.clone(), *it, ending)
        });
        due.collect()
    }
}
