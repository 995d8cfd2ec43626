//! Judges a simulation while it runs. All clients share one clock, so it knows exactly who believes in a lock at a moment.

use std::collections::BTreeMap;

use crate::{Fence, Guard, Handle, LostSignal};

/// The hold of a task, from when it got its guard until it released it.
struct Hold {
    client: usize,
    permits: u32,
    lost: LostSignal,
    /// The store lost its data meanwhile: nothing is promised for this hold.
    is_excused: bool,
}

#[derive(Default)]
pub(super) struct Judge {
    holds: BTreeMap<(&'static str, u64), Hold>,
    /// The largest fence that was received for each name.
    fences: BTreeMap<&'static str, Fence>,
    next: u64,
    /// Locks that were detached, for any client to adopt.
    pub(super) handles: Vec<(Wanted, Handle)>,
    pub(super) violations: Vec<String>,
    pub(super) counts: Counts,
}

/// What has happened. A simulation in which nothing happens proves nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) granted: u64,
    pub(super) adopted: u64,
    pub(super) refused: u64,
    pub(super) failed: u64,
    pub(super) dropped: u64,
    pub(super) lost: u64,
    pub(super) faults: u64,
    pub(super) crashes: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: Self) {
        self.granted += other.granted;
        self.adopted += other.adopted;
        self.refused += other.refused;
        self.failed += other.failed;
        self.dropped += other.dropped;
        self.lost += other.lost;
        self.faults += other.faults;
        self.crashes += other.crashes;
    }
}

/// What is asked for: the name of a lock, how many permits of it, and how many there are.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) name: &'static str,
    pub(super) permits: u32,
    pub(super) limit: u32,
}

impl Judge {
    /// A task has got a guard. Returns the number of its hold.
    pub(super) fn granted(&mut self, client: usize, wanted: Wanted, guard: &Guard) -> u64 {
        let Wanted { name, permits, limit } = wanted;
        self.counts.granted += 1;
        if !guard.is_lost() {
            let (fence, newest) = (guard.fence(), self.fences.get(name).copied());
            // Only one that excludes all others is ordered with all of them; readers may share a fence.
            if permits == limit
                && let Some(newest) = newest.filter(|newest| *newest >= fence)
            {
                self.violations
                    .push(format!("{name}: the fence {fence} comes after {newest} (I4)"));
            }
            self.fences.insert(name, newest.map_or(fence, |newest| newest.max(fence)));
        }
        self.hold(client, wanted, guard)
    }

    /// A task has adopted a lock, with the fence that it has had. Returns the number of its hold.
    pub(super) fn adopted(&mut self, client: usize, wanted: Wanted, guard: &Guard) -> u64 {
        self.counts.adopted += 1;
        self.hold(client, wanted, guard)
    }

    fn hold(&mut self, client: usize, wanted: Wanted, guard: &Guard) -> u64 {
        if !guard.is_lost() {
            self.judge_holders(wanted);
        }
        self.next += 1;
        let lost = guard.lost_signal();
        let hold = Hold { client, permits: wanted.permits, lost, is_excused: false };
        self.holds.insert((wanted.name, self.next), hold);
        self.next
    }

    /// There are never too many holders whose leases are valid (I1).
    fn judge_holders(&mut self, Wanted { name, permits, limit }: Wanted) {
        let of_name = self.holds.range((name, 0)..=(name, u64::MAX)).map(|(_, hold)| hold);
        let valid: Vec<_> =
            of_name.filter(|hold| !hold.is_excused && !hold.lost.is_lost()).collect();
        let taken: u32 = valid.iter().map(|hold| hold.permits).sum();
        if taken + permits > limit {
            let clients: Vec<_> = valid.iter().map(|hold| hold.client).collect();
            let wrong = format!(
                "{name}: {permits} of {limit} permits were granted while the clients {clients:?} hold {taken} (I1)"
            );
            self.violations.push(wrong);
        }
    }

    /// A task is about to release what it holds.
    pub(super) fn released(&mut self, name: &'static str, number: u64) {
        let hold = self.holds.remove(&(name, number));
        self.counts.lost += u64::from(hold.is_some_and(|hold| hold.lost.is_lost()));
    }

    /// A client has crashed: it believes in nothing any more.
    pub(super) fn crashed(&mut self, client: usize) {
        self.holds.retain(|_, hold| hold.client != client);
        self.counts.crashes += 1;
    }

    /// The store has lost its data.
    pub(super) fn excuse_holders(&mut self) {
        self.holds.values_mut().for_each(|hold| hold.is_excused = true);
    }

    pub(super) fn violated(&mut self, wrong: String) {
        self.violations.push(wrong);
    }
}
