//! Judges a simulation while it runs. All clients share one clock, so it knows exactly who believes in a lock at a moment.

use std::collections::BTreeMap;

use crate::{Fence, Guard, Handle, LostSignal, Owner};

/// The hold of a task, from when it got its guard until it released it.
struct Hold {
    client: usize,
    /// Tasks may share one: then they exclude each other's holders, and not each other.
    owner: Owner,
    permits: u32,
    fence: Fence,
    lost: LostSignal,
    /// The store lost its data meanwhile: nothing is promised for this hold.
    is_excused: bool,
}

#[derive(Default)]
pub(super) struct Judge {
    holds: BTreeMap<(&'static str, u64), Hold>,
    /// The largest fence that each owner has received for each name.
    fences: BTreeMap<&'static str, BTreeMap<Owner, Fence>>,
    /// Whether clients of one owner that enter at the same time may get different fences for what it holds.
    is_quorum: bool,
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
    pub(super) downgraded: u64,
    /// Granted to an owner that another guard was valid of.
    pub(super) shared: u64,
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
        self.downgraded += other.downgraded;
        self.shared += other.shared;
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
    pub(super) fn new(is_quorum: bool) -> Self {
        Self { is_quorum, ..Self::default() }
    }

    /// A task has got a guard. Returns the number of its hold.
    pub(super) fn granted(&mut self, client: usize, wanted: Wanted, guard: &Guard) -> u64 {
        self.counts.granted += 1;
        if !guard.is_lost() && !self.is_excused(wanted.name, guard) {
            self.judge_fence(wanted, guard.fence(), guard.owner());
        }
        self.hold(client, wanted, guard)
    }

    /// Only a grant that excludes all others is ordered with all of them (I4): readers may share a fence. Who enters again has the
    /// fence of its hold.
    fn judge_fence(&mut self, wanted: Wanted, fence: Fence, owner: Owner) {
        let Wanted { name, permits, limit } = wanted;
        let fences = self.fences.entry(name).or_default();
        let is_wrong = |&(of, it): &(&Owner, &Fence)| match *of == owner {
            true => *it > fence && !self.is_quorum,
            false => *it >= fence,
        };
        if permits == limit
            && let Some((_, newest)) = fences.iter().find(is_wrong)
        {
            self.violations.push(format!("{name}: the fence {fence} comes after {newest} (I4)"));
        }
        let own = fences.entry(owner).or_insert(fence);
        *own = fence.max(*own);
    }

    /// A task has adopted a lock, with the fence that it has had. Returns the number of its hold.
    pub(super) fn adopted(&mut self, client: usize, wanted: Wanted, guard: &Guard) -> u64 {
        self.counts.adopted += 1;
        self.hold(client, wanted, guard)
    }

    fn hold(&mut self, client: usize, wanted: Wanted, guard: &Guard) -> u64 {
        let is_excused = self.is_excused(wanted.name, guard);
        if !guard.is_lost() && !is_excused {
            self.judge_holders(wanted, guard.owner());
        }
        let (owner, fence) = (guard.owner(), guard.fence());
        let is_shared = self.valid(wanted.name).any(|hold| hold.owner == owner);
        self.counts.shared += u64::from(is_shared);
        self.next += 1;
        let (permits, lost) = (wanted.permits, guard.lost_signal());
        let hold = Hold { client, owner, permits, fence, lost, is_excused };
        self.holds.insert((wanted.name, self.next), hold);
        self.next
    }

    fn valid(&self, name: &'static str) -> impl Iterator<Item = &Hold> {
        let of_name = self.holds.range((name, 0)..=(name, u64::MAX)).map(|(_, hold)| hold);
        of_name.filter(|hold| !hold.lost.is_lost())
    }

    /// Whether it is a further entry, counted by the client, into a hold that nothing is promised for.
    fn is_excused(&self, name: &'static str, guard: &Guard) -> bool {
        let (owner, fence) = (guard.owner(), guard.fence());
        self.valid(name).any(|hold| hold.is_excused && hold.owner == owner && hold.fence == fence)
    }

    /// There are never too many holders whose leases are valid (I1). An owner has as many permits as the guard of it that has most.
    fn judge_holders(&mut self, Wanted { name, permits, limit }: Wanted, owner: Owner) {
        let others = self.valid(name).filter(|hold| hold.owner != owner);
        let valid: Vec<_> = others.filter(|hold| !hold.is_excused).collect();
        let mut by_owner = BTreeMap::<Owner, u32>::new();
        for hold in &valid {
            let most = by_owner.entry(hold.owner).or_default();
            *most = hold.permits.max(*most);
        }
        let taken: u32 = by_owner.values().sum();
        if taken + permits > limit {
            let clients: Vec<_> = valid.iter().map(|hold| hold.client).collect();
            let wrong = format!(
                "{name}: {permits} of {limit} permits were granted while the clients {clients:?} hold {taken} (I1)"
            );
            self.violations.push(wrong);
        }
    }

    /// A task is about to give back its permits but one.
    pub(super) fn downgraded(&mut self, name: &'static str, number: u64) {
        self.holds.entry((name, number)).and_modify(|hold| hold.permits = 1);
        self.counts.downgraded += 1;
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
