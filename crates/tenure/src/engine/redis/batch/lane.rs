//! The calls of one script for some of the locks, and the names that are ready for the next one.

use std::collections::VecDeque;

use super::super::scripts::Script;
use super::item::Item;
use crate::core::name::LockName;

/// This many operations make a call worth sending though others of its kind are in flight: its fixed cost is shared by
/// enough of them, and the server is not idle while this client reads replies.
const FULL_BATCH: usize = 16;

/// With full batches, this many calls of a kind may be in flight, however near the server is: one in progress, one
/// queued in the server, and one whose answer this client reads.
const CALLS_WITH_FULL_BATCHES: usize = 3;

/// The calls of one script, for some of the locks.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LaneKey {
    script: usize,
    pub(super) locks: Locks,
}

/// The locks that a call may be for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Locks {
    /// Those of one slot. One server has one slot.
    Of(u16),
    /// Those of the slots of a cluster's node, if they are plain ([`spread`](super::spread)).
    On(u64),
}

impl LaneKey {
    pub(super) fn of(item: &dyn Item) -> Self {
        let on_node = item.node().map(Locks::On);
        Self { locks: on_node.unwrap_or(Locks::Of(item.slot())), ..Self::new(item.script(), 0) }
    }

    pub(super) fn new(script: &'static Script, slot: u16) -> Self {
        Self { script: std::ptr::from_ref(script).addr(), locks: Locks::Of(slot) }
    }
}

/// The calls of one script for some of the locks.
#[derive(Default)]
pub(super) struct Lane {
    pub(super) in_flight: usize,
    /// The next call carries the script's text.
    pub(super) sends_text: bool,
    /// Names whose first operation is of this kind, in the order in which they became ready.
    pub(super) ready: VecDeque<LockName>,
}

impl Lane {
    /// Whether a call can be sent, with at most `calls` in flight; a full batch with a few more.
    pub(super) fn can_send(&self, calls: usize) -> bool {
        let is_full = self.ready.len() >= FULL_BATCH && self.in_flight < CALLS_WITH_FULL_BATCHES;
        is_full || self.in_flight < calls && !self.ready.is_empty()
    }
}
