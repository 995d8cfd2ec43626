//! What a node is still to end, because it has not confirmed it (I6), or because another copy of the request may still arrive:
//! then nothing that this node grants to the entry lasts for certain (I1).

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::error::StoreError;
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
    forgotten: Forgotten,
}

/// Ends beyond those that are remembered: while one of them may still arrive, an end of any entry may.
#[derive(Default)]
struct Forgotten {
    in_flight: AtomicU64,
    /// By then, in microseconds, those that were not confirmed have no effect any more.
    until: AtomicU64,
}

/// What became of an end that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Confirmed,
    /// It was not performed, and will not be.
    Refused,
    /// It may still arrive.
    Unknown,
}

impl From<&StoreError> for Fate {
    fn from(error: &StoreError) -> Self {
        if error.is_unknown() { Self::Unknown } else { Self::Refused }
    }
}

impl From<&Result<(), StoreError>> for Fate {
    fn from(result: &Result<(), StoreError>) -> Self {
        result.as_ref().map_or_else(Self::from, |()| Self::Confirmed)
    }
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
    /// The note that it is of; none if there was no room for one.
    id: Option<u64>,
    number: u32,
    keep: u32,
    until: Moment,
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
        Ending { id: Some(self.id), number: self.sent, keep: self.keep, until: self.until }
    }

    /// An end was answered. True if the node has confirmed the last one, and none can arrive any more.
    fn answered(&mut self, ending: Ending, fate: Fate) -> bool {
        self.in_flight -= 1;
        self.may_arrive |= fate == Fate::Unknown;
        if ending.number == self.sent {
            // It may have ended meanwhile, which the node does not know.
            self.is_done = fate == Fate::Confirmed && ending.keep == self.keep;
        }
        self.in_flight == 0 && self.is_done && !self.may_arrive
    }
}

impl Forgotten {
    fn begin(&self, keep: u32, until: Moment) -> Ending {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        Ending { id: None, number: 0, keep, until }
    }

    fn answered(&self, ending: Ending, fate: Fate) {
        // Before it is counted as answered: there must be no moment without either.
        if fate == Fate::Unknown {
            self.is_lost_until(ending.until);
        }
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
    }

    fn is_lost_until(&self, until: Moment) {
        self.until.fetch_max(until.as_micros(), Ordering::SeqCst);
    }

    fn may_arrive(&self) -> bool {
        if self.in_flight.load(Ordering::SeqCst) > 0 {
            return true;
        }
        let until = self.until.load(Ordering::SeqCst);
        until > 0 && clock::now() < Moment::from_micros(until)
    }
}

impl Leftovers {
    /// Whether ends that are not remembered may still arrive.
    pub(super) fn has_forgotten(&self) -> bool {
        self.forgotten.may_arrive()
    }

    pub(super) fn is_ending(&self, name: &LockName, entry: Entry) -> bool {
        let notes = lock(&self.notes);
        !notes.is_empty() && notes.get(&(name.clone(), entry)).is_some_and(|it| it.keep == 0)
    }

    /// An end that was sent was not confirmed, or is to be sent: it is repeated later. Unless it was refused, a copy may arrive.
    pub(super) fn note(
        &self,
        key: Key,
        keep: u32,
        lingers_until: Option<Moment>,
        until: Moment,
        fate: Fate,
    ) {
        let may_arrive = fate == Fate::Unknown;
        let noted = self.change(key, keep, until, |it| {
            it.lingers_until = lingers_until;
            it.may_arrive |= may_arrive;
        });
        if noted.is_none() && may_arrive {
            self.forgotten.is_lost_until(until);
        }
    }

    /// An end is being sent.
    pub(super) fn begin(&self, key: &Key, until: Moment) -> Ending {
        let noted = self.change(key.clone(), 0, until, |it| {
            it.lingers_until = None;
            it.send()
        });
        noted.unwrap_or_else(|| self.forgotten.begin(0, until))
    }

    /// Changes the note of an entry; none if there is no room for one.
    fn change<T>(
        &self,
        key: Key,
        keep: u32,
        until: Moment,
        change: impl FnOnce(&mut Left) -> T,
    ) -> Option<T> {
        let mut notes = lock(&self.notes);
        if notes.len() >= MOST && !notes.contains_key(&key) {
            return None;
        }
        let it = notes.entry(key).or_insert_with(|| Left::new(keep, until));
        // What has ended keeps nothing, whatever was sent before.
        (it.keep, it.until) = (it.keep.min(keep), it.until.max(until));
        it.is_done = false;
        Some(change(it))
    }

    pub(super) fn answered(&self, key: &Key, ending: Ending, fate: Fate) {
        let Some(id) = ending.id else { return self.forgotten.answered(ending, fate) };
        let mut notes = lock(&self.notes);
        let note = notes.get_mut(key).filter(|it| it.id == id);
        if note.is_some_and(|it| it.answered(ending, fate)) {
            notes.remove(key);
        }
    }

    /// What is to be repeated now. Forgets what has ended by itself.
    pub(super) fn due(&self, now: Moment) -> Vec<(Key, Left, Ending)> {
        let mut notes = lock(&self.notes);
        notes.retain(|_, it| it.until > now);
        let due = notes.iter_mut().filter(|(_, it)| it.in_flight == 0 && !it.is_done);
        let due = due.take(REPEATED).map(|(key, it)| {
            let ending = it.send();
            (key.clone(), *it, ending)
        });
        due.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::owner::Owner;

    fn key() -> Key {
        (LockName::new("x").unwrap(), Entry { owner: Owner::new(), number: 0 })
    }

    fn later() -> Moment {
        clock::now() + Duration::from_secs(60)
    }

    /// A node that refuses connections has nothing on the way: once it is back and has confirmed the end, the entry may be granted.
    #[test]
    fn an_end_that_was_refused_is_repeated_and_then_forgotten() {
        let (left, (name, entry)) = (Leftovers::default(), key());
        let key = (name.clone(), entry);
        left.note(key.clone(), 0, None, later(), Fate::Refused);
        for fate in [Fate::Refused, Fate::Confirmed] {
            let (_, _, ending) = left.due(clock::now()).pop().unwrap();
            assert!(left.is_ending(&name, entry));
            left.answered(&key, ending, fate);
        }
        assert!(!left.is_ending(&name, entry) && left.due(clock::now()).is_empty());
    }

    /// I1: one that may have been sent stays noted, whatever is confirmed later.
    #[test]
    fn an_end_whose_fate_is_unknown_may_arrive_until_its_time() {
        let (left, (name, entry)) = (Leftovers::default(), key());
        let key = (name.clone(), entry);
        left.note(key.clone(), 0, None, later(), Fate::Unknown);
        let (_, _, ending) = left.due(clock::now()).pop().unwrap();
        left.answered(&key, ending, Fate::Confirmed);
        assert!(left.is_ending(&name, entry) && left.due(clock::now()).is_empty());
        left.due(later() + Duration::from_secs(1));
        assert!(!left.is_ending(&name, entry));
    }

    /// I1: that those which are remembered have been confirmed says nothing of the others.
    #[test]
    fn an_end_beyond_those_that_are_remembered_may_arrive_too() {
        let left = Leftovers::default();
        let noted: Vec<_> =
            (0..MOST).map(|_| key()).map(|it| (left.begin(&it, later()), it)).collect();
        let (more, still_more) = (key(), key());
        let (second, third) = (left.begin(&more, later()), left.begin(&still_more, later()));
        let confirm = |(ending, key)| left.answered(&key, ending, Fate::Confirmed);
        noted.into_iter().for_each(confirm);
        confirm((second, more));
        assert!(left.due(clock::now()).is_empty() && left.has_forgotten(), "one is on the way");
        left.answered(&still_more, third, Fate::Unknown);
        assert!(left.has_forgotten(), "it may still arrive");
    }

    #[test]
    fn many_ends_that_were_confirmed_are_no_reason_to_expect_another() {
        let left = Leftovers::default();
        let sent: Vec<_> =
            (0..2 * MOST).map(|_| key()).map(|it| (left.begin(&it, later()), it)).collect();
        assert!(left.has_forgotten());
        sent.into_iter().for_each(|(ending, key)| left.answered(&key, ending, Fate::Confirmed));
        assert!(!left.has_forgotten() && lock(&left.notes).is_empty());
    }
}
