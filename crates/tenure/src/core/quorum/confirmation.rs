//! A renewal over all nodes, or a fence that is committed by one.
//!
//! It is confirmed by a majority alone. A renewal that is not confirmed changes nothing: no node is asked to give up a
//! hold because others have not answered.

use std::time::Duration;

use super::Size;
use crate::core::lease::{self, Lease};
use crate::core::moment::Moment;

/// What a node has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ack {
    Pending,
    Extended,
    /// It holds the lock for the owner, but is not known to have this entry.
    Partial,
    NotHeld,
    /// No answer that counts.
    Silent,
}

/// The verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirmed {
    Open,
    /// Enough nodes hold it for its lease from the moment the renewal was sent.
    Extended,
    /// So many nodes do not hold it that the others are no majority.
    NotHeld,
    /// Too many nodes did not answer: the old deadline stands.
    Failed,
}

/// The answers to one renewal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Confirmation {
    needed: usize,
    sent: Moment,
    acks: Vec<Ack>,
}

impl Confirmation {
    pub(crate) fn new(size: Size, needed: usize, sent: Moment) -> Self {
        Self { needed, sent, acks: vec![Ack::Pending; size.nodes()] }
    }

    /// So many nodes must confirm it, as is known only now.
    pub(crate) fn require(&mut self, needed: usize) {
        self.needed = needed;
    }

    pub(crate) fn needed(&self) -> usize {
        self.needed
    }

    /// Notes the answer of a node.
    pub(crate) fn note(&mut self, node: usize, ack: Ack) {
        self.acks[node] = ack;
    }

    pub(crate) fn verdict(&self) -> Confirmed {
        let count = |ack| self.acks.iter().filter(|it| **it == ack).count();
        let (extended, pending) = (count(Ack::Extended), count(Ack::Pending));
        if extended >= self.needed {
            Confirmed::Extended
        } else if self.acks.len() - count(Ack::NotHeld) < self.needed {
            Confirmed::NotHeld
        } else if extended + pending < self.needed {
            Confirmed::Failed
        } else {
            Confirmed::Open
        }
    }

    /// Whether a majority holds it now: has confirmed it, and its lease has not ended meanwhile. A grant that is reported
    /// later than that would come after those of others.
    pub(crate) fn proves(&self, lease: Duration, now: Moment) -> bool {
        self.verdict() == Confirmed::Extended && now < lease::deadline(self.sent, lease)
    }

    /// Whether this node lost the hold and may get it back, and for how long: only while a majority of all nodes has
    /// just proved the ownership, by whatever entry, and no longer than it has proved. Otherwise a hold could return that has ended, with
    /// a fence that others have overtaken.
    pub(crate) fn repair(&self, node: usize, lease: Duration, now: Moment) -> Option<Lease> {
        let is_missing = matches!(self.acks[node], Ack::NotHeld | Ack::Partial);
        let owned = self.acks.iter().filter(|it| matches!(it, Ack::Extended | Ack::Partial));
        if !is_missing || owned.count() < self.needed || now >= lease::deadline(self.sent, lease) {
            return None;
        }
        Lease::new(lease.saturating_sub(now.since(self.sent))).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn confirmation(acks: [Ack; 5]) -> Confirmation {
        let size = Size::new(5).unwrap();
        let mut confirmation = Confirmation::new(size, size.majority(), Moment::ZERO);
        acks.into_iter().enumerate().for_each(|(node, ack)| confirmation.note(node, ack));
        confirmation
    }

    use Ack::{Extended, NotHeld, Pending, Silent};

    /// I3, I6.
    #[test]
    fn a_majority_decides_and_silence_decides_nothing() {
        let verdict = |acks| confirmation(acks).verdict();
        assert_eq!(verdict([Extended, Extended, Extended, Pending, Pending]), Confirmed::Extended);
        assert_eq!(verdict([Extended, Extended, NotHeld, NotHeld, Pending]), Confirmed::Open);
        assert_eq!(verdict([Extended, Extended, NotHeld, NotHeld, NotHeld]), Confirmed::NotHeld);
        assert_eq!(verdict([Extended, Extended, NotHeld, NotHeld, Silent]), Confirmed::Failed);
        assert_eq!(verdict([Extended, Extended, Silent, Silent, Silent]), Confirmed::Failed);
        assert_eq!(verdict([Silent, Silent, Silent, Pending, Pending]), Confirmed::Failed);
    }

    #[test]
    fn a_node_is_repaired_for_as_long_as_a_majority_has_proved() {
        let lease = Duration::from_secs(3);
        let later = Moment::ZERO + Duration::from_secs(1);
        let proved = confirmation([Extended, Extended, Extended, NotHeld, Silent]);
        assert_eq!(proved.repair(3, lease, later).unwrap().duration(), Duration::from_secs(2));
        assert_eq!(proved.repair(4, lease, later), None, "it may hold it");
        assert_eq!(proved.repair(3, lease, Moment::ZERO + lease), None, "the proof has ended");
        assert!(proved.proves(lease, later) && !proved.proves(lease, Moment::ZERO + lease));
        let unproved = confirmation([Extended, Extended, Pending, NotHeld, Silent]);
        assert_eq!(unproved.repair(3, lease, later), None);
    }
}
