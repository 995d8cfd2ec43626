//! An entry that wants a lock: what each node has answered, and what follows from it.
//!
//! The verdict falls with the first majority, or when none is possible any more: a slow node is never waited for. A
//! candidate that waits stays in the queues of the nodes, and its verdict changes when nodes hand the lock over to it.

use std::time::Duration;

use super::Size;
use crate::core::fence::Fence;
use crate::core::lease::{self, ClockSync};
use crate::core::moment::Moment;
use crate::core::shape::{Kind, Shape};

/// What a node has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Claim {
    /// Nothing yet.
    None,
    Held(Hold),
    Queued(Place),
    Busy,
    /// The lock was free, but the proposed fence is not larger than the node's last.
    Outdated {
        last: Fence,
    },
    /// The name is in use in another way, or the owner holds it with fewer permits.
    Refused,
    /// No answer that counts. It may hold the lock all the same, if the outcome is unknown.
    Silent {
        is_unknown: bool,
    },
}

/// The lock is held at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hold {
    pub(crate) fence: Fence,
    /// How many fences, from `fence` on, belong to it.
    pub(crate) fences: u32,
    /// When it was made, by the node's clock.
    pub(crate) stamp: Moment,
    /// When it was made, by our clock, at the earliest.
    pub(crate) at: Moment,
    pub(crate) lease: Duration,
}

impl Hold {
    pub(crate) fn deadline(&self) -> Moment {
        lease::deadline(self.at, self.lease)
    }
}

/// The entry waits in the queue of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) ahead: u32,
    pub(crate) free_in: Duration,
    /// When it was asked for by our clock, and answered by the node's.
    pub(crate) sync: ClockSync,
}

/// What the answers amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Answers that may come decide it.
    Open,
    /// Enough nodes hold it, with one fence. The hold is the one of them that ends when they are no longer enough.
    Granted(Hold),
    /// Enough nodes hold it, with different fences. The largest must be stored at enough of them first (I4).
    Commit {
        fence: Fence,
    },
    /// It waits at enough nodes.
    Queued {
        ahead: u32,
        free_in: Duration,
    },
    /// The fence was too small: propose a larger one than this.
    Outdated {
        last: Fence,
    },
    /// No majority is possible, and no node has granted it.
    Busy {
        /// Some answer is awaited, and may be a grant: then the vote is split.
        is_open: bool,
    },
    /// Some nodes granted it, and others granted it to other candidates: no candidate may have got enough.
    Split,
    Refused,
    /// Too many nodes did not answer.
    Failed {
        is_unknown: bool,
    },
}

/// An entry that wants a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Candidate {
    needed: usize,
    /// Whether its fence matters: it does not for a latch or a barrier.
    is_fenced: bool,
    ballots: Vec<Ballot>,
}

/// The state of one node's vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Ballot {
    /// When the request was sent whose answer is awaited.
    asked: Option<Moment>,
    claim: Claim,
}

impl Candidate {
    pub(crate) fn new(size: Size, shape: Shape) -> Self {
        let ballot = Ballot { asked: None, claim: Claim::None };
        Self {
            needed: size.needed(shape),
            is_fenced: !matches!(shape.kind(), Kind::Latch | Kind::Barrier),
            ballots: vec![ballot; size.nodes()],
        }
    }

    pub(crate) fn needed(&self) -> usize {
        self.needed
    }

    pub(crate) fn claim(&self, node: usize) -> Claim {
        self.ballots[node].claim
    }

    /// A request is being sent to a node.
    pub(crate) fn ask(&mut self, node: usize, sent: Moment) {
        self.ballots[node].asked = Some(sent);
    }

    /// The entry is being taken back from a node.
    pub(crate) fn give_back(&mut self, node: usize) {
        let ballot = &mut self.ballots[node];
        (ballot.asked, ballot.claim) = (None, Claim::None);
    }

    /// Notes the answer to the last request to a node.
    pub(crate) fn answer(&mut self, node: usize, mut claim: Claim) {
        let ballot = &mut self.ballots[node];
        // That a question was refused says nothing about the one before it, which may have been granted (I6).
        if let Claim::Silent { is_unknown } = &mut claim {
            *is_unknown |= ballot.may_have();
        }
        ballot.asked = None;
        // The message of a hand-over may be faster than the answer before it.
        if let (Claim::Held(hold), Claim::Queued(place)) = (&ballot.claim, &claim)
            && hold.stamp >= place.sync.store
        {
            return;
        }
        ballot.claim = claim;
    }

    /// A node has handed the lock over to this entry, and its message was received at this moment. False if the node
    /// must be asked, because it cannot be said since when the entry holds it (I2), or whether it still does: a message may
    /// be late, and about a hold that was given back, or cancelled by an earlier attempt of the same entry (I1). One that
    /// is younger than the node's last answer, that the entry waits, is about what followed.
    pub(crate) fn handed_over(
        &mut self,
        node: usize,
        (fence, fences): (Fence, u32),
        (stamp, lease): (Moment, Duration),
        received: Moment,
    ) -> bool {
        let ballot = &mut self.ballots[node];
        let at = match ballot.claim {
            Claim::Held(hold) if hold.stamp >= stamp => return true,
            Claim::Queued(place) if stamp > place.sync.store => {
                place.sync.granted_at(stamp, received)
            }
            _ => None,
        };
        if let Some(at) = at {
            ballot.claim = Claim::Held(Hold { fence, fences, stamp, at, lease });
        }
        at.is_some()
    }

    /// What the answers so far amount to.
    pub(crate) fn verdict(&self, now: Moment) -> Verdict {
        let held = self.held(now).count();
        if held >= self.needed {
            return self.elect(now);
        }
        let asked = self.count(|ballot| ballot.asked.is_some() && !ballot.is_held(now));
        if held + asked >= self.needed {
            return Verdict::Open;
        }
        // No grant follows from the answers that can still come.
        let queued = self.count(|it| it.asked.is_none() && matches!(it.claim, Claim::Queued(_)));
        if held + queued >= self.needed && queued > 0 {
            return self.standing();
        }
        let outdated = self.outdated();
        if let Some(last) = outdated
            && held + queued + self.count(Ballot::is_outdated) >= self.needed
        {
            return Verdict::Outdated { last };
        }
        if held + queued + asked + self.count(Ballot::is_outdated) >= self.needed && asked > 0 {
            return Verdict::Open;
        }
        self.failure(held, asked)
    }

    /// The largest fence that a node has reported as its last.
    pub(crate) fn outdated(&self) -> Option<Fence> {
        let lasts = self.ballots.iter().filter_map(|ballot| match ballot.claim {
            Claim::Outdated { last } => Some(last),
            _ => None,
        });
        lasts.max()
    }

    /// The nodes that hold it, if they are too few. It gives them up after a while, for another candidate may have the
    /// others, and wait for these.
    pub(crate) fn minority(&self, now: Moment) -> Vec<usize> {
        let held: Vec<_> = self.held(now).map(|(node, _)| node).collect();
        if held.len() < self.needed { held } else { Vec::new() }
    }

    /// Whether a node may hold or queue the entry, and must be asked to end it (I6).
    pub(crate) fn is_there(&self, node: usize) -> bool {
        let ballot = self.ballots[node];
        ballot.asked.is_some() || ballot.may_have()
    }

    /// Whether a node is known to hold it.
    pub(crate) fn is_held_at(&self, node: usize) -> bool {
        matches!(self.ballots[node].claim, Claim::Held(_))
    }

    /// Whether a node has answered that others have the lock, or nothing that counts.
    pub(crate) fn is_refused_at(&self, node: usize) -> bool {
        let Ballot { asked, claim } = self.ballots[node];
        asked.is_none() && matches!(claim, Claim::Busy | Claim::Silent { .. })
    }

    /// Whether a node holds it now, as far as is known: after its lease the node may have another entry of the same owner.
    pub(crate) fn is_held_now(&self, node: usize, now: Moment) -> bool {
        self.ballots[node].is_held(now)
    }

    /// A node that holds it has extended its lease, by a request that was sent at this moment.
    pub(crate) fn extend(&mut self, node: usize, at: Moment, lease: Duration) {
        if let Claim::Held(hold) = &mut self.ballots[node].claim
            && hold.deadline() < lease::deadline(at, lease)
        {
            (hold.at, hold.lease) = (at, lease);
        }
    }

    /// The grant, if enough nodes agree on the fence.
    fn elect(&self, now: Moment) -> Verdict {
        let largest = self.held(now).map(|(_, hold)| hold.fence).max();
        let largest = largest.unwrap_or(Fence::from_value(0));
        let fences = self.held(now).map(|(_, hold)| hold.fence);
        let agreed = fences.clone().find(|fence| {
            self.held(now).filter(|(_, hold)| hold.fence == *fence).count() >= self.needed
        });
        match agreed {
            Some(fence) => Verdict::Granted(self.hold(fence, |it| it.fence == fence, now)),
            None if self.is_fenced => Verdict::Commit { fence: largest },
            None => Verdict::Granted(self.hold(largest, |_| true, now)),
        }
    }

    /// The hold of some nodes together: until too few of them are left.
    fn hold(&self, fence: Fence, counts: impl Fn(&Hold) -> bool, now: Moment) -> Hold {
        let mut holds: Vec<_> =
            self.held(now).map(|(_, hold)| hold).filter(|it| counts(it)).collect();
        holds.sort_by_key(|hold| std::cmp::Reverse(hold.deadline()));
        holds.truncate(self.needed);
        let fences = holds.iter().map(|hold| hold.fences).min().unwrap_or(1);
        let last = holds[self.needed - 1];
        Hold { fence, fences, ..last }
    }

    fn standing(&self) -> Verdict {
        let places = self.ballots.iter().filter_map(|ballot| match ballot.claim {
            Claim::Queued(place) => Some(place),
            _ => None,
        });
        // The entry is served once the last of the nodes that it needs serves it.
        let mut ahead: Vec<_> = places.clone().map(|place| place.ahead).collect();
        let mut free_in: Vec<_> = places.map(|place| place.free_in).collect();
        ahead.sort_unstable();
        free_in.sort_unstable();
        let at = (self.needed - 1).min(ahead.len() - 1);
        Verdict::Queued { ahead: ahead[at], free_in: free_in[at] }
    }

    fn failure(&self, held: usize, asked: usize) -> Verdict {
        let nodes = self.ballots.len();
        let busy = self.count(|ballot| matches!(ballot.claim, Claim::Busy));
        let silent = |unknown: bool| move |it: &Ballot| matches!(it.claim, Claim::Silent { is_unknown } if is_unknown | !unknown);
        if self.count(|ballot| ballot.claim == Claim::Refused) > nodes - self.needed {
            Verdict::Refused
        } else if self.count(silent(false)) > nodes - self.needed || busy == 0 && held == 0 {
            Verdict::Failed { is_unknown: self.count(silent(true)) > 0 }
        } else if held == 0 {
            Verdict::Busy { is_open: asked > 0 }
        } else {
            Verdict::Split
        }
    }

    fn held(&self, now: Moment) -> impl Iterator<Item = (usize, Hold)> + Clone {
        self.ballots.iter().enumerate().filter_map(move |(node, ballot)| match ballot.claim {
            Claim::Held(hold) if hold.deadline() > now => Some((node, hold)),
            _ => None,
        })
    }

    fn count(&self, counts: impl Fn(&Ballot) -> bool) -> usize {
        self.ballots.iter().filter(|ballot| counts(ballot)).count()
    }
}

impl Ballot {
    /// Whether the node may have the entry, by its answers so far.
    fn may_have(self) -> bool {
        matches!(self.claim, Claim::Held(_) | Claim::Queued(_) | Claim::Silent { is_unknown: true })
    }

    fn is_held(&self, now: Moment) -> bool {
        matches!(self.claim, Claim::Held(hold) if hold.deadline() > now)
    }

    fn is_outdated(&self) -> bool {
        matches!(self.claim, Claim::Outdated { .. })
    }
}

#[cfg(test)]
mod tests;
