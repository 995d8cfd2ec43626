//! The requests of wait groups that are in flight to the store.
//!
//! The engine performs the operations of one name in the order of its calls. So a question whose call
//! has returned is undone by an operation that is sent after it. A question whose call still runs, on
//! another thread, may be performed at any moment: it is undone after its call has returned.

use std::collections::{HashMap, hash_map};

use crate::owner::Entry;

/// The questions in flight, by entry. Part of the wait groups' table, and under its mutex.
#[derive(Default)]
pub(super) struct Questions {
    by_entry: HashMap<Entry, InFlight>,
}

/// What has happened while a question is in flight.
#[derive(Clone, Copy, Default)]
struct InFlight {
    /// There was a reason to ask again, which its answer may not reflect.
    is_outdated: bool,
    /// The engine's call has returned; its answer has not arrived.
    is_sent: bool,
    /// Its entry was given up before the engine's call had returned.
    is_given_up: bool,
    /// Its entry is being released, by a call that has not returned.
    is_releasing: bool,
    /// Its entry was given up or released after the engine's call had returned.
    is_ended: bool,
}

/// What has happened between a question and its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::driver) struct Meanwhile {
    /// There was a reason to ask again.
    pub(in crate::driver) is_outdated: bool,
    /// Its entry was given up or released.
    pub(in crate::driver) is_ended: bool,
}

/// What to do with a question after the engine's call has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::driver) enum Sent {
    /// Its answer is wanted.
    Wanted,
    /// Its entry was given up meanwhile: its effect must be undone.
    GivenUp,
    /// Its entry is being released. The release comes first, because it reports whether the lock was
    /// held; then the releasing thread undoes the question.
    Releasing,
}

impl Questions {
    /// Notes that the engine is called for an entry. False if a question is in flight already: that one
    /// is outdated now.
    pub(super) fn start(&mut self, entry: Entry) -> bool {
        match self.by_entry.entry(entry) {
            hash_map::Entry::Occupied(mut question) => {
                question.get_mut().is_outdated = true;
                false
            }
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(InFlight::default());
                true
            }
        }
    }

    /// Notes that the engine's call has returned.
    pub(super) fn sent(&mut self, entry: Entry) -> Sent {
        let Some(question) = self.by_entry.get_mut(&entry) else { return Sent::Wanted };
        question.is_sent = true;
        if question.is_releasing {
            return Sent::Releasing;
        }
        if question.is_given_up {
            self.by_entry.remove(&entry);
            return Sent::GivenUp;
        }
        Sent::Wanted
    }

    /// Notes the answer. Returns what has happened meanwhile.
    pub(super) fn answered(&mut self, entry: Entry) -> Meanwhile {
        let question = self.by_entry.remove(&entry).unwrap_or_default();
        let InFlight { is_outdated, is_ended, .. } = question;
        Meanwhile { is_outdated, is_ended }
    }

    /// Gives an entry up. True if the engine is being called for it: the calling thread then undoes it.
    pub(super) fn give_up(&mut self, entry: Entry) -> bool {
        match self.by_entry.get_mut(&entry) {
            Some(question) if !question.is_sent => {
                question.is_given_up = true;
                true
            }
            Some(question) => {
                question.is_ended = true;
                false
            }
            None => false,
        }
    }

    /// An entry is about to be released. True if the engine is being called for it.
    pub(super) fn start_releasing(&mut self, entry: Entry) -> bool {
        if self.by_entry.is_empty() || !self.give_up(entry) {
            return false;
        }
        self.by_entry.entry(entry).and_modify(|question| question.is_releasing = true);
        true
    }

    /// The call that releases has returned. True if the question's call has returned too, which must now
    /// be undone.
    pub(super) fn stop_releasing(&mut self, entry: Entry) -> bool {
        let Some(question) = self.by_entry.get_mut(&entry) else { return false };
        question.is_releasing = false;
        let is_sent = question.is_sent;
        if is_sent {
            self.by_entry.remove(&entry);
        }
        is_sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I7: the answer to a question may say that it was performed after the release or the cancel of its entry. That entry
    /// had no task any more, and was left in the store.
    #[test]
    fn an_entry_that_ends_before_the_answer_is_known() {
        let (mut questions, kept, ended) = (Questions::default(), Entry::single(), Entry::single());
        for entry in [kept, ended] {
            assert!(questions.start(entry));
            assert_eq!(questions.sent(entry), Sent::Wanted);
        }
        assert!(!questions.start_releasing(ended), "its call has returned");
        assert!(!questions.start(kept), "a question is in flight");
        let meanwhile = questions.answered(kept);
        assert_eq!((meanwhile.is_outdated, meanwhile.is_ended), (true, false));
        let meanwhile = questions.answered(ended);
        assert_eq!((meanwhile.is_outdated, meanwhile.is_ended), (false, true));
    }
}
