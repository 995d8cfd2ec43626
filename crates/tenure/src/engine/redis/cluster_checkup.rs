//! The checks of `doctor` on a cluster as a whole.

use std::sync::Arc;
use std::time::Duration;

use super::checkup::setting;
use super::cluster::Cluster;
use super::node::Node;
use super::resp::{Command, Reply};
use super::slot::SLOTS;
use crate::clock;
use crate::core::moment::Moment;
use crate::engine::checkup::{Finding, Severity};

/// Nodes whose clocks differ by more than this hold a lock for noticeably longer, or shorter, after a failover.
const SKEWED: Duration = Duration::from_millis(500);

pub(super) async fn findings(cluster: &Cluster) -> Vec<Finding> {
    let nodes = cluster.nodes();
    let mut findings = vec![coverage(cluster, nodes.len())];
    findings.push(in_transit(&nodes).await);
    findings.extend(full_coverage(&nodes).await);
    findings.extend(skew(&nodes).await);
    findings
}

fn coverage(cluster: &Cluster, nodes: usize) -> Finding {
    const TOPIC: &str = "slots";
    match cluster.uncovered() {
        0 => Finding::fine(TOPIC, format!("{nodes} primaries have all {SLOTS} slots")),
        missing => Finding::bad(
            TOPIC,
            Severity::Problem,
            format!("{missing} of {SLOTS} slots have no node: locks in them cannot be taken"),
            "assign them (CLUSTER ADDSLOTSRANGE), or repair the node that had them",
        ),
    }
}

/// A slot that an operator has begun to move, and not finished.
async fn in_transit(nodes: &[Arc<Node>]) -> Finding {
    const TOPIC: &str = "slots in transit";
    let mut found = Vec::new();
    for node in nodes {
        let command = Command::new("CLUSTER").arg("NODES");
        let reply = node.commands.request(&command).await;
        let moving = match &reply {
            Ok(reply) => reply.text().map(moving_slots),
            Err(_) => None,
        };
        match moving {
            Some(slots) => found.extend(slots),
            None => {
                return Finding::bad(
                    TOPIC,
                    Severity::Warning,
                    format!("{} does not show its slots in transit", node.commands.address.master),
                    "run the doctor as a user with +cluster|nodes: locks do not need it",
                );
            }
        }
    }
    if found.is_empty() {
        return Finding::fine(TOPIC, "none");
    }
    Finding::bad(
        TOPIC,
        Severity::Warning,
        format!("{} slots are being moved, such as {}", found.len(), found[0]),
        "locks in them work, but clients poll for those that others hold, and a failover now may lose locks: \
         finish the move, or abandon it with CLUSTER SETSLOT … STABLE",
    )
}

/// `[7-<-id]` and `[7->-id]` at the end of the line of the node that was asked.
fn moving_slots(nodes: &str) -> Vec<String> {
    let own = nodes.lines().find(|line| line.split(' ').nth(2).is_some_and(is_myself));
    let words = own.unwrap_or_default().split(' ').skip(8);
    let outgoing = words.filter_map(|word| word.strip_prefix('[')?.split_once("->-"));
    outgoing.map(|(slot, _)| slot.to_owned()).collect()
}

fn is_myself(flags: &str) -> bool {
    flags.split(',').any(|flag| flag == "myself")
}

/// With full coverage required, a failover of one primary stops all of them.
async fn full_coverage(nodes: &[Arc<Node>]) -> Option<Finding> {
    const TOPIC: &str = "full coverage";
    let mut required = None;
    for node in nodes {
        let is_so = setting(&node.commands, "cluster-require-full-coverage").await? == "yes";
        required = required.or(is_so.then(|| node.commands.address.master.to_string()));
    }
    Some(match required {
        None => {
            Finding::fine(TOPIC, "not required: a failover stops the slots of one primary alone")
        }
        Some(node) => Finding::bad(
            TOPIC,
            Severity::Warning,
            format!(
                "{node} requires full coverage: while one primary fails over, all refuse locks"
            ),
            "CONFIG SET cluster-require-full-coverage no on every node, and CONFIG REWRITE to keep it",
        ),
    })
}

/// The largest difference between the clocks of two nodes.
async fn skew(nodes: &[Arc<Node>]) -> Option<Finding> {
    const TOPIC: &str = "clocks of the nodes";
    let mut differences = Vec::new();
    for node in nodes {
        let sent = clock::both().wall;
        let reply = node.commands.request(&Command::new("TIME")).await.ok()?;
        let trip = clock::both().wall.since(sent);
        let between = sent + trip / 2;
        differences.push(read_time(&reply)?.as_micros() as i128 - between.as_micros() as i128);
    }
    let (least, most) = (differences.iter().min()?, differences.iter().max()?);
    let skew = Duration::from_micros(u64::try_from(most - least).ok()?);
    let found = format!("they differ by {skew:.1?} at most");
    if skew < SKEWED {
        return Some(Finding::fine(TOPIC, found));
    }
    let advice =
        "after a failover, leases end by the clock of another node: let all of them follow NTP";
    Some(Finding::bad(TOPIC, Severity::Warning, found, advice))
}

fn read_time(reply: &Reply) -> Option<Moment> {
    let [seconds, micros] = reply.array()? else { return None };
    Some(Moment::from_micros(seconds.number()? * 1_000_000 + micros.number()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_in_transit_are_read_from_the_node_that_moves_them() {
        let nodes = "aa 127.0.0.1:1@2 myself,master - 0 0 1 connected 0-5460 [7->-bb] [9-<-cc]\n\
                     bb 127.0.0.1:3@4 master - 0 0 2 connected 5461-16383\n";
        assert_eq!(moving_slots(nodes), ["7"]);
        assert!(moving_slots("").is_empty());
    }
}
