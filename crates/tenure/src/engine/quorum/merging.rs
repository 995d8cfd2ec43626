//! What a majority of the nodes says about a lock.

use std::collections::HashMap;

use crate::core::name::LockName;
use crate::info::{HolderInfo, LockInfo, WaiterInfo};
use crate::owner::Owner;

/// Merges what the nodes say, each of which may be missing. A holder is one that a majority of all nodes shows; what
/// others show is named as a disagreement. It is often a candidate that has not got a majority, or a node that was down.
pub(super) fn merge(
    name: LockName,
    infos: &[Option<LockInfo>],
    nodes: &[&str],
    majority: usize,
) -> LockInfo {
    let known: Vec<_> = infos.iter().flatten().collect();
    let shown = count(known.iter().flat_map(|info| info.holders.iter().map(|it| it.owner)));
    let is_holder = |owner: &Owner| shown.get(owner).is_some_and(|count| *count >= majority);
    let mut holders: Vec<_> = shown
        .keys()
        .filter(|owner| is_holder(owner))
        .map(|owner| holder(*owner, &known, majority))
        .collect();
    holders.sort_by_key(|holder| holder.fence);
    let queued = count(known.iter().flat_map(|info| info.waiters.iter().map(|it| it.owner)));
    let errors: Vec<_> = known.iter().filter_map(|info| info.error.as_ref()).collect();
    let holding = nth_largest(known.iter().map(|info| info.holding), majority).min(
        // More than are shown.
        if holders.is_empty() { 0 } else { usize::MAX },
    );
    let waiting = nth_largest(known.iter().map(|info| info.waiting), majority);
    let is_used = holding > 0 || waiting > 0;
    let like = known.iter().find(|info| is_used && info.kind.is_some());
    LockInfo {
        kind: like.and_then(|info| info.kind),
        limit: like.map_or(0, |info| info.limit),
        holding,
        holders,
        waiting,
        waiters: waiters(&known, |owner| {
            queued.get(owner).is_some_and(|count| *count >= majority) && !is_holder(owner)
        }),
        forced: known.iter().filter_map(|info| info.forced.clone()).max_by_key(|it| it.at),
        error: (errors.len() > infos.len() - majority).then(|| errors[0].clone()),
        disagreement: disagreement(infos, nodes, is_holder),
        ..LockInfo::free(name)
    }
}

fn count(owners: impl Iterator<Item = Owner>) -> HashMap<Owner, usize> {
    let mut counts = HashMap::new();
    owners.for_each(|owner| *counts.entry(owner).or_default() += 1);
    counts
}

/// As most nodes see it: its lease lasts until too few are left.
fn holder(owner: Owner, infos: &[&LockInfo], majority: usize) -> HolderInfo {
    let mut seen: Vec<_> =
        infos.iter().flat_map(|info| info.holders.iter()).filter(|it| it.owner == owner).collect();
    seen.sort_by_key(|it| std::cmp::Reverse(it.lease_left));
    let lease_left = seen[majority - 1].lease_left;
    let fence = seen.iter().map(|it| it.fence).max();
    let like = *seen.iter().find(|it| Some(it.fence) == fence).unwrap_or(&seen[0]);
    let entries = nth_largest(seen.iter().map(|it| it.entries as usize), majority);
    HolderInfo { lease_left, entries: u32::try_from(entries).unwrap_or(u32::MAX), ..like.clone() }
}

/// In the order of the node that shows most of them.
fn waiters(infos: &[&LockInfo], waits: impl Fn(&Owner) -> bool) -> Vec<WaiterInfo> {
    let wait = |info: &&&LockInfo| info.waiters.iter().filter(|it| waits(&it.owner)).count();
    let longest = infos.iter().max_by_key(wait);
    let longest = longest.into_iter().flat_map(|info| info.waiters.iter());
    longest.filter(|it| waits(&it.owner)).cloned().collect()
}

/// The number that a majority reaches.
fn nth_largest(numbers: impl Iterator<Item = usize>, n: usize) -> usize {
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    numbers.get(n - 1).copied().unwrap_or(0)
}

fn disagreement(
    infos: &[Option<LockInfo>],
    nodes: &[&str],
    is_holder: impl Fn(&Owner) -> bool,
) -> Option<String> {
    let mut said = Vec::new();
    for (node, info) in nodes.iter().zip(infos) {
        let Some(info) = info else {
            said.push(format!("{node} did not answer"));
            continue;
        };
        if let Some(error) = &info.error {
            said.push(format!("{node} cannot read it: {error}"));
        }
        let others = info.holders.iter().filter(|it| !is_holder(&it.owner));
        said.extend(others.map(|it| format!("{node} alone has {} as a holder", it.about)));
    }
    (!said.is_empty()).then(|| said.join("; "))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::{About, Fence, Kind};

    fn held(owner: Owner, seconds: u64) -> Option<LockInfo> {
        let holder = HolderInfo {
            owner,
            about: Arc::new(About::this_process()),
            permits: 1,
            entries: 1,
            fence: Fence::from_value(7),
            since: SystemTime::UNIX_EPOCH,
            lease_left: Duration::from_secs(seconds),
        };
        let name = LockName::new("x").unwrap();
        let (kind, holders) = (Some(Kind::Mutex), vec![holder]);
        Some(LockInfo { kind, limit: 1, holding: 1, holders, ..LockInfo::free(name) })
    }

    fn merged(infos: [Option<LockInfo>; 3]) -> LockInfo {
        merge(LockName::new("x").unwrap(), &infos, &["a", "b", "c"], 2)
    }

    #[test]
    fn a_holder_is_one_that_a_majority_shows() {
        let (owner, other) = (Owner::new(), Owner::new());
        let info = merged([held(owner, 3), held(other, 9), held(owner, 5)]);
        assert_eq!((info.holding, info.holders[0].owner), (1, owner));
        assert_eq!(info.holders[0].lease_left, Duration::from_secs(3), "until one is left");
        assert!(info.disagreement.unwrap().contains("b alone has"));
    }

    #[test]
    fn a_minority_holds_nothing() {
        let free = LockInfo::free(LockName::new("x").unwrap());
        let info = merged([held(Owner::new(), 3), Some(free), None]);
        assert!(info.is_free() && info.holders.is_empty() && info.kind.is_none());
        assert!(info.disagreement.unwrap().contains("c did not answer"));
    }
}
