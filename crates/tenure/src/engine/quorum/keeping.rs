//! An attempt whose entry is held: which nodes have it, by which number, and whose it is.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::attempt::{Attempt, Phase};
use crate::core::moment::Moment;
use crate::core::quorum::{Ack, Claim, Hold};
use crate::owner::Entry;
use crate::sync::lock;

impl Attempt {
    /// Its hold was detached.
    pub(super) fn let_go(&self) {
        self.is_let_go.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_let_go(&self) -> bool {
        self.is_let_go.load(Ordering::SeqCst)
    }

    /// A node is asked to take the hold again, or has answered.
    pub(super) fn note_repair(&self, node: usize, is_sent: bool) {
        match is_sent {
            true => self.repairing.fetch_or(1 << node, Ordering::SeqCst),
            false => self.repairing.fetch_and(!(1 << node), Ordering::SeqCst),
        };
    }

    /// The entry by which a node gets the hold again: another one, if the node may still end the last one (I1).
    pub(super) fn entry_to_repair(&self, node: usize, may_end: impl Fn(Entry) -> bool) -> Entry {
        let mut state = lock(&self.state);
        if may_end(state.entry(self, node)) {
            state.renumber(self, node);
        }
        state.entry(self, node)
    }

    /// The nodes know the entry by the numbers that it has in another attempt: another number would be a second entry there.
    pub(super) fn adopt_entries(&mut self, other: &Self) {
        let entries = lock(&other.state).entries.clone();
        lock(&self.state).entries = entries;
        self.is_of_hold = true;
    }

    /// A node knows the entry by this number from now on. Returns the entry that it had; none if it has ended.
    pub(super) fn rename_at(&self, node: usize, entry: Entry) -> Option<Entry> {
        let mut state = lock(&self.state);
        if state.phase == Phase::Ended {
            return None;
        }
        let before = state.entry(self, node);
        state.entries[node] = entry.number;
        Some(before)
    }

    /// Whether a node may have the entry, or get it, and is not known to hold it.
    pub(super) fn is_unsure_at(&self, node: usize) -> bool {
        let is_repairing = self.repairing.load(Ordering::SeqCst) & (1 << node) != 0;
        let state = lock(&self.state);
        is_repairing || state.candidate.is_there(node) && !state.candidate.is_held_at(node)
    }

    /// A node has answered a renewal of this entry: whether it has it. None if the attempt has another number there by now. What is
    /// about to end there does not count (I1).
    pub(super) fn answered_at(
        &self,
        node: usize,
        entry: Entry,
        ack: Ack,
        (sent, lease): (Moment, Duration),
        is_ending: bool,
    ) -> Option<bool> {
        let mut state = lock(&self.state);
        if state.entry(self, node) != entry || state.phase == Phase::Ended {
            return None;
        } else if ack != Ack::Extended || is_ending {
            state.candidate.give_back(node);
            return Some(false);
        } else if state.candidate.is_held_at(node) {
            state.candidate.extend(node, sent, lease);
        } else {
            let fence = state.proposal;
            let hold = Hold { fence, fences: 1, stamp: Moment::ZERO, at: sent, lease };
            state.candidate.answer(node, Claim::Held(hold));
        }
        Some(true)
    }

    /// A node has the hold again, by this entry. False if it was taken back there meanwhile.
    pub(super) fn repaired(&self, node: usize, entry: Entry, hold: Hold) -> bool {
        let mut state = lock(&self.state);
        let is_current = state.entry(self, node) == entry;
        if is_current {
            state.candidate.answer(node, Claim::Held(hold));
        }
        is_current
    }

    /// Whether it is about an entry that is held: granted to it, or asked for once more.
    pub(super) fn is_about_hold(&self) -> bool {
        self.is_of_hold || self.is_granted()
    }

    pub(super) fn is_granted(&self) -> bool {
        lock(&self.state).phase == Phase::Granted
    }

    /// Whether a node is known to hold it now.
    pub(super) fn is_held_now(&self, node: usize, now: Moment) -> bool {
        lock(&self.state).candidate.is_held_now(node, now)
    }
}
