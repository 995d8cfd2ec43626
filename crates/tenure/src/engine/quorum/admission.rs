//! Which nodes may vote.
//!
//! A node that has lost its data could grant again what it has granted before. It has lost its marker as well, so all
//! clients refuse it, in the same step as each operation. A node that was restarted may have lost a part of its data; one that
//! was a replica of another node has that one's data. Both have a marker, but not the one of their process, and are refused
//! as well.
//!
//! They vote again by themselves when they cannot do harm any more: after the *quarantine*, which is the longest lease,
//! and as long again as a node may accept an old fence. Every lease that the node has forgotten has then ended, and it
//! refuses every fence that it has forgotten. An operator need not be called at night to restore the redundancy.
//!
//! **Who counts the time.** Not the node itself, whose clock may be set, or wrong since its start; nor the client, which may
//! be a command that lives for a second. The other nodes do, also those that do not vote themselves, by their clocks: the client gives the absence a token, which it
//! stores at the node, and each other node notes when it first heard of the token. The token names the process, so it is a
//! new one after a restart, and it is lost with the node's data, so it is a new one after each loss.
//!
//! **Who may be a node.** Only a server at an address that was marked by an operator: otherwise a client with a wrong
//! address would make a new server a node, and two majorities could have none in common.

use std::time::Duration;

use super::identity::{Identity, Marked};
use crate::core::fence::RETENTION;
use crate::engine::redis::Survey;
use crate::owner::unique_number;

/// For how long a node does not vote after a loss: until its leases have ended, and it refuses its fences as outdated,
/// with an allowance for drift.
pub(super) fn quarantine(longest: Duration) -> Duration {
    let time = longest + RETENTION;
    time + time / 100 + Duration::from_millis(2)
}

/// What to do with a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// This process of it votes.
    Vote,
    /// It does not, and the other nodes are asked for how long.
    Absent { token: String, why: &'static str },
    /// It does not, and that must be written down first.
    Note { why: &'static str },
    /// It belongs to another quorum.
    Foreign,
    /// It cannot be a node as it is configured.
    Unfit { why: &'static str },
}

/// What the marker of a node names that is not to vote, instead of its process.
pub(super) const NO_PROCESS: &str = "none";

/// Why a server cannot be a node.
pub(super) const EVICTS: &str =
    "its `maxmemory-policy` lets it remove locks, and their marker stays: set it to `noeviction`";

/// Decides about a node of this quorum.
pub(super) fn decide(survey: &Survey, identity: &Identity) -> Admission {
    match by_marker(survey, identity) {
        // Locks may be gone, and the marker is not: as after any other loss of data, it votes again after the quarantine.
        Admission::Vote if survey.evicts => Admission::Note { why: EVICTS },
        _ if survey.evicts => Admission::Unfit { why: EVICTS },
        admission => admission,
    }
}

fn by_marker(survey: &Survey, identity: &Identity) -> Admission {
    let why = match survey.marker.as_ref().map(|it| it.parse::<Marked>()) {
        Some(Ok(marked)) if marked.identity == *identity => {
            if marked.run_id == survey.process {
                return Admission::Vote;
            }
            if marked.run_id == NO_PROCESS {
                "its `maxmemory-policy` let it remove locks"
            } else {
                "it was restarted, was a replica, or has got the data of another server"
            }
        }
        Some(_) => return Admission::Foreign,
        None => "it has lost its data",
    };
    match &survey.absent {
        Some(token) if token.starts_with(&survey.run_id) => {
            Admission::Absent { token: token.clone(), why }
        }
        // The token of another process, before whose end more may have been lost.
        _ => Admission::Note { why },
    }
}

/// A token for the absence of a process.
pub(super) fn new_token(run_id: &str) -> String {
    format!("{run_id}-{:016x}", unique_number())
}

/// How much of the quarantine is left, if the other nodes have known of the absence for so long. They must be at least as many
/// as may fail together with this one, so that one of them is right at least; and the shortest time counts.
pub(super) fn left(known: &[Duration], nodes: usize, quarantine: Duration) -> Duration {
    if known.len() < (nodes - 1) / 2 {
        return quarantine;
    }
    quarantine.saturating_sub(known.iter().copied().min().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lease;
    use crate::core::moment::Moment;

    fn identity() -> Identity {
        Identity::new(3, Lease::DEFAULT, Moment::ZERO)
    }

    fn survey(marker: Option<String>, absent: Option<&str>) -> Survey {
        Survey {
            marker,
            members: None,
            absent: absent.map(str::to_owned),
            run_id: "now".to_owned(),
            process: "now".to_owned(),
            evicts: false,
            clock_set: Duration::ZERO,
            now: Moment::ZERO,
            asked: (Moment::ZERO, Moment::ZERO),
            keys: 0,
        }
    }

    /// I1: an operator may set the policy right at any time, when locks are gone already.
    #[test]
    fn a_node_that_could_remove_locks_is_in_quarantine() {
        let ours = identity();
        let evicting = |marker, absent| Survey { evicts: true, ..survey(marker, absent) };
        let noted = decide(&evicting(Some(ours.marker("now")), None), &ours);
        assert_eq!(noted, Admission::Note { why: EVICTS });
        let still = decide(&evicting(Some(ours.marker(NO_PROCESS)), Some("now-7")), &ours);
        assert_eq!(still, Admission::Unfit { why: EVICTS });
        let set_right = decide(&survey(Some(ours.marker(NO_PROCESS)), Some("now-7")), &ours);
        assert!(matches!(set_right, Admission::Absent { .. }), "{set_right:?}");
    }

    /// I1, I4: a node votes with the marker of its process, and no other.
    #[test]
    fn a_node_votes_only_with_its_data() {
        let (ours, other) = (identity(), identity());
        let decide = |marker, absent| super::decide(&survey(marker, absent), &ours);
        assert_eq!(decide(Some(ours.marker("now")), None), Admission::Vote);
        assert_eq!(decide(Some(other.marker("now")), None), Admission::Foreign);
        assert_eq!(decide(Some("garbage".into()), None), Admission::Foreign);
        for marker in [None, Some(ours.marker("before"))] {
            let noted = decide(marker.clone(), None);
            assert!(matches!(noted, Admission::Note { .. }), "{noted:?}");
            let of_another_process = decide(marker.clone(), Some("before-7"));
            assert!(matches!(of_another_process, Admission::Note { .. }), "{of_another_process:?}");
            let absent = decide(marker, Some("now-7"));
            assert!(matches!(&absent, Admission::Absent { token, .. } if token == "now-7"));
        }
    }

    /// I1: whatever the clocks of a minority say, and of the node itself.
    #[test]
    fn the_other_nodes_count_the_quarantine() {
        let time = quarantine(Duration::from_secs(30));
        assert!(time > Duration::from_secs(60) && time < Duration::from_secs(61));
        let (long, short) = (Duration::from_secs(90), Duration::from_secs(1));
        assert_eq!(left(&[], 3, time), time);
        assert_eq!(left(&[long], 3, time), Duration::ZERO);
        assert_eq!(left(&[long, short], 3, time), time - short);
        assert_eq!(left(&[long], 5, time), time, "one of five may be wrong, too");
        assert_eq!(left(&[long, long], 5, time), Duration::ZERO);
    }
}
