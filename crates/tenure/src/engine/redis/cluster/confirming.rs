//! Whether the other primaries of a cluster still name a node.
//!
//! A replica takes over with the votes of a majority of the primaries, and reports to all nodes at once that it has. So the
//! answers of as many of the others that any majority has one of them suffice. They are asked on the connections that this
//! client has: one round trip.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::super::address::HostPort;
use super::super::resp::Command;
use super::view::{NodeId, View};
use super::{Cluster, Node};
use crate::owner::unique_number;
use crate::sync::lock;

/// How long the other primaries are waited for, besides the round trip. Then more nodes are asked, on new connections.
const ANSWER_TIME: Duration = Duration::from_millis(100);

/// How many answers are needed at most, and how many more nodes are asked than are needed.
const MOST_NEEDED: usize = 5;
const SPARE: usize = 1;

impl Cluster {
    /// Whether the other primaries still name a node as one; none if too few of them answer.
    pub(super) async fn is_still_named(&self, at: &HostPort, id: Option<&NodeId>) -> Option<bool> {
        let mut others = self.others(at);
        let needed = needed(others.len() + 1);
        // Not always the same ones, if there are many.
        let first = unique_number() as usize % others.len().max(1);
        others.rotate_left(first);
        let mut asking = JoinSet::new();
        for (asked, node) in others.into_iter().take(needed + SPARE) {
            asking.spawn(async move {
                let reply = node.renewals.ask(&Command::new("CLUSTER").arg("SLOTS")).await.ok()?;
                View::read(&reply, &asked)
            });
        }
        let counting = async {
            let mut answered = 0;
            while answered < needed {
                match asking.join_next().await? {
                    Ok(Some(view)) if view.is_owner(at, id) => answered += 1,
                    Ok(Some(_)) => return Some(false),
                    _ => {}
                }
            }
            Some(true)
        };
        let time = ANSWER_TIME + self.round_trip() * 2;
        tokio::time::timeout(time, counting).await.ok().flatten()
    }

    /// Whether a node alone has slots.
    pub(super) fn has_no_other_primary(&self, at: &HostPort) -> bool {
        self.others(at).is_empty()
    }

    /// A node may have been replaced: asks for the map of slots.
    pub(super) fn note_doubt(&self) {
        self.outdated.notify_one();
    }

    /// The other nodes that have slots.
    fn others(&self, at: &HostPort) -> Vec<(HostPort, Arc<Node>)> {
        let state = lock(&self.state);
        let others =
            state.nodes.iter().filter(|(it, member)| *it != at && member.unused_since.is_none());
        others.map(|(at, member)| (at.clone(), member.node.clone())).collect()
    }
}

/// How many other primaries of so many must answer, so that each majority of all of them has one that did.
fn needed(primaries: usize) -> usize {
    primaries.saturating_sub(1 + primaries / 2).clamp(1, MOST_NEEDED)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node is replaced by the votes of a majority of all primaries, without its own.
    #[test]
    fn every_majority_has_one_of_those_that_answered() {
        for primaries in 3..=11 {
            let (others, votes) = (primaries - 1, primaries / 2 + 1);
            assert!(needed(primaries) + votes > others, "{primaries} primaries");
            assert!(needed(primaries) - 1 + votes <= others || needed(primaries) == 1);
        }
        assert_eq!((needed(1), needed(2), needed(3), needed(100)), (1, 1, 1, 5));
    }
}
