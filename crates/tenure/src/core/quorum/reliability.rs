//! Whether the votes of a node count.
//!
//! Leases end by the node's clock (A2). A clock that was set forward has ended leases that their holders rely on, so the
//! node must not grant until all leases that it had granted before would have ended. A client that has seen the clock
//! before notices the step; a client that has not compares the calendars of the nodes, which then disagree.
//!
//! A clock that was set back ends no lease early, until it is set right: so what a node extends while its clock is behind does
//! not count. Otherwise a renewal is answered by what the node has now: it counts, whatever became of the clock.

use std::time::Duration;

use crate::core::clock_step::{ClockStep, ClockWatch};
use crate::core::moment::Moment;

/// How far the calendar of a node may be from that of most nodes: more than synchronised clocks differ.
pub(crate) const TOLERANCE: Duration = Duration::from_secs(1);

/// Leases up to so many times a step are concerned by it: the deadline of a holder is a hundredth of its lease early
/// (`core/lease.rs`), and half of that is left to clocks that drift.
const LEASES_CONCERNED: u32 = 200;

/// Steps that were noticed within this time may be one and the same, of our own clock: that of each node is compared with it every
/// five seconds.
const AT_ONCE: Duration = Duration::from_secs(10);

/// How late a message about a hand-over may come.
const LATE_MESSAGE: Duration = Duration::from_secs(60);

/// Whether the votes of one node count, as far as its clock is concerned.
#[derive(Debug, Default)]
pub(crate) struct Reliability {
    watch: ClockWatch,
    /// It does not vote before this moment of our clock.
    excluded_until: Option<Moment>,
    /// Its clock was set back, and messages from before may still come.
    doubted_until: Option<Moment>,
    /// Its last step forward.
    leap: Option<Leap>,
}

/// A clock seems to have been set forward: when that was noticed, and how far at least and at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leap {
    noticed: Moment,
    least: Duration,
    most: Duration,
}

impl Leap {
    /// Whether both may be one step of the clock that both were compared with.
    fn may_be(&self, other: &Self) -> bool {
        let apart = self.noticed.since(other.noticed).max(other.noticed.since(self.noticed));
        apart <= AT_ONCE && self.least <= other.most && other.least <= self.most
    }
}

impl Reliability {
    /// Notes an answer that was sent for and received at these moments of our clock, and made at `store` by the node's.
    /// If that clock was set forward, the node does not vote until every lease that may have ended early would have ended:
    /// a holder stops counting on its lease by a hundredth of it before its end, so a small step concerns short leases only.
    pub(crate) fn note(
        &mut self,
        sent: Moment,
        received: Moment,
        store: Moment,
        longest: Duration,
    ) -> Option<ClockStep> {
        let step = self.watch.note(sent, received, store);
        if let Some(ClockStep::Forward(least)) = step {
            let most = self.watch.most_forward();
            self.leap = Some(Leap { noticed: received, least, most });
            self.exclude(received, most.saturating_mul(LEASES_CONCERNED).min(longest));
        }
        if let Some(ClockStep::Back(_)) = step {
            self.doubted_until = Some(received + LATE_MESSAGE);
        }
        step
    }

    /// The node does not vote until every lease that it may have ended early has ended.
    pub(crate) fn exclude(&mut self, now: Moment, longest: Duration) {
        let until = now + longest + longest / 100 + Duration::from_millis(2);
        self.excluded_until = self.excluded_until.max(Some(until));
    }

    /// The last step forward of its clock.
    pub(crate) fn leap(&self) -> Option<Leap> {
        self.leap
    }

    /// Whether a message with a later time than an answer was sent after it.
    pub(crate) fn trusts_stamps(&self, now: Moment) -> bool {
        self.doubted_until.is_none_or(|until| now >= until)
    }

    /// Whether its answers count.
    pub(crate) fn votes(&self, now: Moment) -> bool {
        self.excluded_until.is_none_or(|until| now >= until)
    }
}

/// Whether it was our own clock that stood still, and not that of this node which was set forward: a majority seems to have been
/// set forward as far, at the same time. The clock of a virtual machine may stand still while it is paused.
pub(crate) fn is_ours(leaps: &[Option<Leap>], node: usize) -> bool {
    let Some(own) = leaps[node] else { return false };
    leaps.iter().flatten().filter(|it| it.may_be(&own)).count() > leaps.len() / 2
}

/// How far a node's calendar is ahead of our clock: the bounds from one answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calendar {
    least: i128,
    most: i128,
}

impl Calendar {
    /// From an answer that was sent for and received at these moments of our clock.
    pub(crate) fn new(sent: Moment, received: Moment, calendar: Moment) -> Self {
        let ahead_of =
            |ours: Moment| i128::from(calendar.as_micros()) - i128::from(ours.as_micros());
        Self { least: ahead_of(received), most: ahead_of(sent) }
    }

    /// How far it is certainly behind another one.
    fn behind(&self, other: &Self) -> Duration {
        let gap = (other.least - self.most).max(0);
        Duration::from_micros(u64::try_from(gap).unwrap_or(u64::MAX))
    }

    /// How far it is certainly from another one.
    pub(crate) fn distance(&self, other: &Self) -> Duration {
        let gap = (self.least - other.most).max(other.least - self.most).max(0);
        Duration::from_micros(u64::try_from(gap).unwrap_or(u64::MAX))
    }
}

/// The nodes whose calendar is not near those of a majority of all nodes, itself included. None while too few are known:
/// these are no majority anyway.
pub(crate) fn deviating(calendars: &[Option<Calendar>]) -> Vec<usize> {
    let majority = calendars.len() / 2 + 1;
    let known = || calendars.iter().flatten();
    if known().count() < majority {
        return Vec::new();
    }
    let deviates = |own: &Calendar| {
        known().filter(|other| own.distance(other) <= TOLERANCE).count() < majority
    };
    let nodes = calendars.iter().enumerate();
    nodes.filter_map(|(node, own)| own.as_ref().is_some_and(deviates).then_some(node)).collect()
}

/// Whether a node's calendar is behind that of another one. If it deviates, too, it may be set forward at any moment, and leases
/// that were extended until then would end early.
pub(crate) fn is_behind(calendars: &[Option<Calendar>], node: usize) -> bool {
    let Some(own) = &calendars[node] else { return false };
    calendars.iter().flatten().any(|other| own.behind(other) > TOLERANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(60);

    fn at(millis: u64) -> Moment {
        Moment::from_micros(millis * 1000)
    }

    #[test]
    fn a_node_whose_clock_was_set_does_not_vote_for_the_longest_lease() {
        let mut node = Reliability::default();
        node.note(at(0), at(1), at(900_000), LONGEST);
        assert!(node.votes(at(1)));
        node.note(at(1_000), at(1_001), at(961_000), LONGEST);
        assert!(!node.votes(at(1_001)) && !node.votes(at(61_000)));
        assert!(node.votes(at(61_700)));
    }

    /// Corrections of some milliseconds are everyday life. A lease of ten seconds has a margin of a hundred.
    #[test]
    fn a_small_step_concerns_short_leases_only() {
        let mut node = Reliability::default();
        node.note(at(0), at(1), at(900_000), LONGEST);
        assert!(node.note(at(100), at(101), at(900_106), LONGEST).is_some());
        assert!(!node.votes(at(101)) && !node.votes(at(900)));
        assert!(node.votes(at(2_500)), "all leases that had less margin have ended");
    }

    /// What the node seems to have done at such a time, if its clock was compared just before.
    fn leap(millis: u64, by: u64) -> Option<Leap> {
        let mut node = Reliability::default();
        node.note(at(millis), at(millis + 1), at(900_000), LONGEST);
        node.note(at(millis + 10), at(millis + 12), at(900_010 + by), LONGEST);
        node.leap()
    }

    #[test]
    fn a_clock_of_our_own_that_stood_still_is_not_that_of_a_node() {
        let (all, none) = ([leap(0, 5_000), leap(900, 5_001), leap(4_000, 4_999)], leap(0, 0));
        assert!((0..3).all(|node| is_ours(&all, node)));
        assert!(is_ours(&[leap(0, 5_000), leap(0, 5_000), none], 0), "one was not reached");
        assert!(!is_ours(&[leap(0, 5_000), none, none], 0));
        assert!(
            !is_ours(&[leap(0, 5_000), leap(0, 9_000), leap(0, 60)], 0),
            "each was set by itself"
        );
        assert!(!is_ours(&[leap(0, 5_000), leap(60_000, 5_000), none], 0), "not at the same time");
        let both = [leap(0, 65_000), leap(0, 5_000), leap(0, 5_000)];
        assert!(!is_ours(&both, 0) && is_ours(&both, 1), "ours stood still, and one was set");
    }

    #[test]
    fn a_clock_that_was_set_back_ends_no_lease_early() {
        let mut node = Reliability::default();
        node.note(at(0), at(1), at(900_000), LONGEST);
        assert!(node.trusts_stamps(at(1)));
        assert!(node.note(at(1_000), at(1_001), at(800_000), LONGEST).is_some());
        assert!(node.votes(at(1_001)));
        assert!(!node.trusts_stamps(at(1_001)), "a message from before seems to be younger");
    }

    fn calendar(ahead: u64) -> Option<Calendar> {
        Some(Calendar::new(at(0), at(1), at(900_000 + ahead)))
    }

    #[test]
    fn a_calendar_that_most_contradict_deviates() {
        assert_eq!(deviating(&[calendar(0), calendar(60_000), calendar(900)]), [1]);
        assert_eq!(
            deviating(&[calendar(60_000), calendar(0), None]),
            [0, 1],
            "either may be wrong"
        );
        assert_eq!(deviating(&[calendar(60_000), None, None]), [0usize; 0], "not known yet");
        assert_eq!(deviating(&[calendar(0), calendar(20), calendar(40)]), [0usize; 0]);
        let calendars = [calendar(0), calendar(60_000), calendar(900)];
        assert!(is_behind(&calendars, 0) && is_behind(&calendars, 2) && !is_behind(&calendars, 1));
        let five = [calendar(0), calendar(10), calendar(0), calendar(60_000), calendar(120_000)];
        assert_eq!(deviating(&five), [3, 4]);
    }
}
