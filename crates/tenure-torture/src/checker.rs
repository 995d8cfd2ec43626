//! Judges a history: what was promised, and was not kept. It knows the history alone, and none of what the run intended.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use crate::history::{History, Hold, Incident, Section, Written};
use crate::time::Micros;
use crate::worker::LEASE;

/// How late an acquire may return after its time: an engine's answers are bounded, and a machine under load is slow.
const GRACE: Micros = 3_000_000;

/// For so long after a fault that loses locks, two clients may believe in one: a lease, which a stopped client may only
/// notice later, and the time in which a server comes back.
const EXCUSED: Micros = 3 * LEASE.as_micros() as Micros + 2_000_000;

/// For so long after any fault the order of the queue is not judged: a client that has lost its connection asks again, and a
/// waiter that was not heard of loses its place.
const UNSETTLED: Micros = 6_000_000;

/// By then a request has surely reached the store, without faults.
const SETTLED: Micros = 500_000;

/// How many sections one process may serve before it must hand the lock to another one (I10).
const PASSES: usize = 65;

/// What a history shows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) sections: usize,
    pub(crate) granted: usize,
    pub(crate) accepted: usize,
    /// Late writes that the fence has refused. Without any, the run proves nothing about fences.
    pub(crate) refused: usize,
    pub(crate) faults: BTreeMap<String, usize>,
    /// Two holders at once after a fault for which the topology promises no better.
    pub(crate) excused_overlaps: usize,
    /// Fences that did not grow, after such a fault: an overtaken holder has passed its hold on within its process.
    pub(crate) excused_fences: usize,
    /// Waits whose order was judged.
    pub(crate) ordered_waits: usize,
    pub(crate) violations: Vec<Violation>,
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// I1.
    TwoHolders(Section, Section),
    /// I4: the second was granted after the first, and its fence is not greater.
    FenceNotGrown(Section, Section),
    /// A write was accepted that is older than one before it.
    StaleWrite(Section, Section),
    /// I7: neither granted nor refused in its time.
    Late(Section),
    /// I10: so many others were served before it that had asked later.
    Overtaken(Section, usize),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoHolders(one, other) => write!(f, "two holders at once: {one}; {other}"),
            Self::FenceNotGrown(one, other) => write!(f, "a fence did not grow: {one}; {other}"),
            Self::StaleWrite(one, other) => write!(f, "a late write was accepted: {one}; {other}"),
            Self::Late(section) => write!(f, "neither granted nor refused in time: {section}"),
            Self::Overtaken(section, by) => write!(f, "overtaken by {by} sections: {section}"),
        }
    }
}

/// Judges a whole run.
pub(crate) fn check(history: &History) -> Verdict {
    let mut verdict = Verdict { sections: history.sections.len(), ..Verdict::default() };
    for incident in &history.incidents {
        *verdict.faults.entry(incident.fault.clone()).or_default() += 1;
    }
    let late = history.sections.iter().filter(|section| is_late(section, &history.incidents));
    verdict.violations.extend(late.cloned().map(Violation::Late));
    for name in history.sections.chunk_by(|one, other| one.name == other.name) {
        let mut held: Vec<_> =
            name.iter().filter_map(|it| it.hold.as_ref().map(|hold| (it, hold))).collect();
        held.sort_by_key(|(section, _)| section.returned);
        verdict.count(&held);
        verdict.check_exclusion(&held, &history.incidents);
        verdict.check_fences(&held, &history.incidents);
        verdict.check_order(&held, &history.incidents);
    }
    verdict
}

/// A process that was stopped could not return in time.
fn is_late(section: &Section, incidents: &[Incident]) -> bool {
    let due = section.asked + section.within + GRACE;
    let is_own = |it: &&Incident| it.process == Some(section.process);
    let in_time = |it: &&Incident| it.from <= section.returned && it.until >= section.asked;
    let mut stops = incidents.iter().filter(is_own).filter(in_time);
    section.returned > due && stops.next().is_none()
}

/// Whether two clients may have believed in a lock, from when a section began until a moment.
fn is_excused(section: &Section, end: Micros, incidents: &[Incident]) -> bool {
    let from = section.returned.saturating_sub(EXCUSED);
    let mut excuses = incidents.iter().filter(|it| it.excuses);
    excuses.any(|it| it.until + EXCUSED >= from && it.from <= end)
}

type Held<'a> = (&'a Section, &'a Hold);

impl Verdict {
    fn count(&mut self, held: &[Held<'_>]) {
        let written = |what| held.iter().filter(|(_, hold)| hold.write == Some(what)).count();
        self.granted += held.len();
        self.accepted += written(Written::Accepted);
        self.refused += written(Written::Refused);
    }

    /// I1: a client holds the lock from the return of its acquire to the last moment at which its guard said so.
    fn check_exclusion(&mut self, held: &[Held<'_>], incidents: &[Incident]) {
        let mut latest: Option<Held<'_>> = None;
        for &(section, hold) in held {
            if let Some((before, until)) = latest
                && section.returned < until.held
                && hold.held >= section.returned
            {
                self.overlap(before, section, until.held.min(hold.held), incidents);
            }
            if latest.is_none_or(|(_, latest)| hold.held > latest.held) {
                latest = Some((section, hold));
            }
        }
    }

    fn overlap(&mut self, one: &Section, other: &Section, end: Micros, incidents: &[Incident]) {
        if is_excused(one, end, incidents) {
            self.excused_overlaps += 1;
        } else {
            self.violations.push(Violation::TwoHolders(one.clone(), other.clone()));
        }
    }

    /// I4: a lock that was asked for after another grant had been received has a greater fence. And no write is accepted after
    /// one with a greater fence was read or written before it was sent.
    ///
    /// Where two clients may believe in a lock, the one that was overtaken may pass its hold on within its process, with the next
    /// fence of its own range. Nothing is written with it.
    fn check_fences(&mut self, held: &[Held<'_>], incidents: &[Incident]) {
        let mut by_asked = held.to_vec();
        by_asked.sort_by_key(|(section, _)| section.asked);
        let mut granted = held.iter().peekable();
        let mut highest: Option<Held<'_>> = None;
        for (section, hold) in by_asked {
            while let Some(before) = granted.next_if(|(it, _)| it.returned < section.asked) {
                if highest.is_none_or(|(_, highest)| before.1.fence > highest.fence) {
                    highest = Some(*before);
                }
            }
            let Some((before, above)) = highest.filter(|(_, it)| it.fence >= hold.fence) else {
                continue;
            };
            let pair = (before.clone(), section.clone());
            if (above.write, hold.write) == (Some(Written::Accepted), Some(Written::Accepted)) {
                self.violations.push(Violation::StaleWrite(pair.0.clone(), pair.1.clone()));
            } else if hold.write != Some(Written::Accepted)
                && is_excused(before, section.returned, incidents)
            {
                self.excused_fences += 1;
                continue;
            }
            self.violations.push(Violation::FenceNotGrown(pair.0, pair.1));
        }
    }

    /// I10, in times without faults: a wait is overtaken by the passes within other processes, and by no more.
    fn check_order(&mut self, held: &[Held<'_>], incidents: &[Incident]) {
        let unsettled: Vec<_> =
            incidents.iter().map(|it| (it.from, it.until + UNSETTLED)).collect();
        let processes: HashSet<_> = held.iter().map(|(section, _)| section.process).collect();
        for (place, (section, _)) in held.iter().enumerate() {
            let (from, until) = (section.asked, section.returned);
            if until < from + SETTLED || unsettled.iter().any(|it| it.0 <= until && it.1 >= from) {
                continue;
            }
            self.ordered_waits += 1;
            let before = held[..place].iter().rev().take_while(|(it, _)| it.returned > from);
            let overtaking = before
                .filter(|(it, _)| it.asked > from + SETTLED && it.process != section.process)
                .count();
            if overtaking > PASSES * processes.len() {
                self.violations.push(Violation::Overtaken((*section).clone(), overtaking));
            }
        }
    }
}

#[cfg(test)]
mod tests;
