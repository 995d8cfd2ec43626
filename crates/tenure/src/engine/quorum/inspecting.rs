//! Inspecting, listing and forcing locks, and the state of the nodes.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::Quorum;
use super::merging::merge;
use crate::core::name::LockName;
use crate::core::quorum::reliability::TOLERANCE;
use crate::engine::{
    Answer, Finding, ForceOutcome, ForceRequest, Health, ListRequest, NodeInfo, Severity, Topology,
};
use crate::info::LockInfo;

impl Quorum {
    pub(super) fn inspect(self: &Arc<Self>, name: LockName) -> Answer<LockInfo> {
        let answers = self.nodes.iter().map(|node| node.engine().inspect(name.clone())).collect();
        let quorum = self.clone();
        Answer::later(async move {
            let collected = quorum.clone().collect(answers).await?;
            let infos = collected.into_iter().map(|answer| answer.and_then(Result::ok)).collect();
            Ok(quorum.merged(name, infos))
        })
    }

    pub(super) fn list(self: &Arc<Self>, request: ListRequest) -> Answer<Vec<LockInfo>> {
        let answers = self.nodes.iter().map(|node| node.engine().list(request.clone())).collect();
        let quorum = self.clone();
        Answer::later(async move {
            let collected = quorum.clone().collect(answers).await?;
            let lists: Vec<_> =
                collected.into_iter().map(|answer| answer.and_then(Result::ok)).collect();
            // A lock that is not in the list of a node is free there, as far as that list reaches.
            let mut by_name = BTreeMap::<LockName, Vec<Option<LockInfo>>>::new();
            for (node, list) in lists.iter().enumerate() {
                for info in list.iter().flatten() {
                    let free = || {
                        lists
                            .iter()
                            .map(|it| it.as_ref().map(|_| LockInfo::free(info.name.clone())))
                    };
                    let infos =
                        by_name.entry(info.name.clone()).or_insert_with(|| free().collect());
                    infos[node] = Some(info.clone());
                }
            }
            let infos = by_name.into_iter().map(|(name, infos)| quorum.merged(name, infos));
            let in_use = |it: &LockInfo| it.holding > 0 || it.waiting > 0 || it.error.is_some();
            Ok(infos.filter(in_use).take(request.limit).collect())
        })
    }

    fn merged(&self, name: LockName, infos: Vec<Option<LockInfo>>) -> LockInfo {
        let names: Vec<_> = self.nodes.iter().map(|node| &*node.name).collect();
        let mut merged = merge(name, &infos, &names, self.size.majority());
        for holder in &mut merged.holders {
            // The nodes know one entry of those that this client counts.
            let counted = self.holds.entries(&merged.name, holder.owner);
            holder.entries = counted.unwrap_or(holder.entries);
        }
        merged
    }

    /// Takes a lock away at all nodes; a majority must have answered.
    pub(super) fn force_release(self: &Arc<Self>, request: ForceRequest) -> Answer<ForceOutcome> {
        let answers =
            self.nodes.iter().map(|node| node.engine().force_release(request.clone())).collect();
        let quorum = self.clone();
        Answer::later(async move {
            let collected = quorum.clone().collect(answers).await?;
            let mut counts = BTreeMap::new();
            for outcome in collected.into_iter().flatten().flatten() {
                if let ForceOutcome::Released(owners) = outcome {
                    let owners: HashSet<_> = owners.into_iter().collect();
                    owners.into_iter().for_each(|owner| *counts.entry(owner).or_insert(0) += 1);
                }
            }
            // Owners of a minority had no lock; they are reported only if no other owner had it.
            let majority = quorum.size.majority();
            let is_held = counts.values().any(|count| *count >= majority);
            let owners: Vec<_> = counts
                .into_iter()
                .filter(|(_, count)| *count >= majority || !is_held)
                .map(|(owner, _)| owner)
                .collect();
            if owners.is_empty() {
                return Ok(ForceOutcome::NotHeld);
            }
            Ok(ForceOutcome::Released(owners))
        })
    }

    /// The findings about each node, and about all of them together.
    pub(super) fn checkup(self: &Arc<Self>) -> Answer<Vec<Finding>> {
        let answers = self.nodes.iter().map(|node| node.engine().checkup()).collect();
        let quorum = self.clone();
        Answer::later(async move {
            let collected = quorum.collect_all(answers).await;
            let mut findings = Vec::new();
            for (node, answer) in quorum.nodes.iter().zip(collected) {
                let name = &node.name;
                match answer {
                    Some(Ok(found)) => findings.extend(found.into_iter().map(|mut finding| {
                        finding.found = format!("{name}: {}", finding.found);
                        finding
                    })),
                    Some(Err(error)) => findings.push(unreachable(name, &error.to_string())),
                    None => findings.push(unreachable(name, "it did not answer in time")),
                }
                if !node.votes() {
                    findings.push(Finding::bad(
                        "clock",
                        Severity::Problem,
                        format!("{name}: its clock was set, or is not that of the other nodes"),
                        "synchronise the clocks of all nodes (NTP); it votes again after the longest lease",
                    ));
                }
            }
            findings.push(quorum.votes());
            findings.push(quorum.skew());
            Ok(findings)
        })
    }

    fn votes(&self) -> Finding {
        let absent: Vec<_> =
            self.nodes.iter().filter_map(|it| Some((&it.name, it.why_absent()?))).collect();
        let found = format!(
            "{} of {} nodes vote in quorum {}, with leases of {:?} at most",
            self.nodes.len() - absent.len(),
            self.nodes.len(),
            self.id,
            self.longest
        );
        if absent.is_empty() {
            return Finding::fine("quorum", found);
        }
        let why: Vec<_> = absent.iter().map(|(name, why)| format!("{name}: {why}")).collect();
        let advice = "a node that was restarted or has lost its data votes again by itself; start one that is down";
        Finding::bad("quorum", Severity::Warning, format!("{found}; {}", why.join("; ")), advice)
    }

    fn skew(&self) -> Finding {
        let calendars: Vec<_> = self.nodes.iter().filter_map(|node| node.calendar()).collect();
        let distances =
            calendars.iter().flat_map(|one| calendars.iter().map(|it| one.distance(it)));
        let most = distances.max().unwrap_or_default();
        let found = format!("the calendars of the nodes differ by {most:?}");
        if most <= TOLERANCE {
            return Finding::fine("clocks", found);
        }
        let advice = "synchronise the clocks of all nodes (NTP): one that is not with the majority does not vote";
        Finding::bad("clocks", Severity::Problem, found, advice)
    }

    /// The nodes, and why one of them does not vote.
    pub(super) fn topology(self: &Arc<Self>) -> Answer<Topology> {
        let answers = self.nodes.iter().map(|node| node.engine().topology()).collect();
        let quorum = self.clone();
        Answer::later(async move {
            let collected = quorum.collect_all(answers).await;
            let mut topology = Topology::new("quorum");
            for (node, answer) in quorum.nodes.iter().zip(collected) {
                let found = answer.and_then(Result::ok);
                let found = found.and_then(|it| it.nodes.into_iter().next());
                let mut info = found.unwrap_or_else(|| NodeInfo::new("", "primary"));
                info.name = node.name.to_string();
                let clock = "its clock was set, so it does not vote";
                let absent = node.why_absent().map(|why| why.to_string());
                let why = absent.or_else(|| (!node.votes()).then(|| clock.to_owned()));
                if why.is_some() {
                    (info.is_up, info.error) = (false, why);
                }
                topology.nodes.push(info);
            }
            Ok(topology)
        })
    }

    pub(super) fn health(&self) -> Health {
        let links = self.nodes.iter().flat_map(|node| {
            node.engine().health().links.into_iter().map(|mut link| {
                link.node = Some(node.name.to_string());
                link
            })
        });
        Health { links: links.collect(), degraded: 0 }
    }
}

fn unreachable(name: &str, why: &str) -> Finding {
    let advice =
        "start it, or replace it: while a majority of the nodes is up, locks work without it";
    Finding::bad("node", Severity::Warning, format!("{name}: {why}"), advice)
}
