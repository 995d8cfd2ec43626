//! A lock that a majority of independent nodes decides about: counting votes, and nothing else.
//!
//! - [`size`]: how many nodes there are, and how many votes an operation needs.
//! - [`proposals`]: the fence that a client proposes to all nodes (I4).
//! - [`candidate`]: an entry that wants the lock: what each node has answered, and the verdict.
//! - [`confirmation`]: a renewal, or a fence that is committed: who has confirmed it, and which nodes to repair.
//! - [`ending`]: a release.
//! - [`reliability`]: whether the votes of a node count: one whose clock was set has none for a while.
//!
//! **Mutual exclusion (I1).** A hold is a majority of nodes that each hold it for one lease, by their own clock. Any two
//! majorities share a node, and a node grants to one owner at a time. The deadline of a hold counts from the moment its
//! requests were *sent*, so it ends before the leases at these nodes do (I2).
//!
//! **Fences (I4).** A node grants a proposed fence only if it is larger than all that it granted before. So a fence that a
//! majority has granted is smaller than that of every later majority: the two share a node. Where nodes gave different
//! fences to one owner, as hand-overs may, the largest is stored at a majority before the grant is reported.
//!
//! Both need nodes that forget nothing. A node that has lost its data has no vote until every lease that it may have
//! forgotten has ended.

pub(crate) mod candidate;
pub(crate) mod confirmation;
pub(crate) mod ending;
#[cfg(test)]
mod model;
pub(crate) mod proposals;
pub(crate) mod reliability;
pub(crate) mod size;

pub(crate) use candidate::{Candidate, Claim, Hold, Place, Verdict};
pub(crate) use confirmation::{Ack, Confirmation, Confirmed};
pub(crate) use ending::{End, Ended, Ending};
pub(crate) use proposals::Proposals;
pub(crate) use reliability::{Calendar, Leap, Reliability, deviating, is_behind, is_ours};
pub(crate) use size::Size;
