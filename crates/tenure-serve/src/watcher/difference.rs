//! What differs between two readings of the store.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use tenure::{HolderInfo, LockInfo, LockName};

use super::{MOST_LOCKS, Reading, Seen};
use crate::shape::{self, whole_millis};

/// A lease that ends later than before by less than this was not renewed: readings are not exact.
const RENEWED_MS: u64 = 400;

/// What differs.
#[derive(Default)]
pub(super) struct Difference {
    /// Locks with other holders, or another number of waiters.
    changed: Vec<LockInfo>,
    /// Locks whose leases were renewed, and no more.
    renewed: Vec<LockInfo>,
    /// Locks that are free.
    gone: Vec<String>,
    /// Holders that have come and gone.
    pub(super) came: Vec<Hold>,
    pub(super) left: Vec<Hold>,
}

/// One holder of a lock.
#[derive(Clone)]
pub(super) struct Hold {
    pub(super) name: LockName,
    pub(super) holder: HolderInfo,
    /// When its lease ends, as far as it is known.
    pub(super) until_ms: u64,
    /// Others were waiting when it came.
    pub(super) was_waited_for: bool,
    /// Its lease had ended when it was gone.
    pub(super) is_over: bool,
}

impl Difference {
    /// `was_cut` says that there were more locks before than were read.
    pub(super) fn between(
        before: &BTreeMap<String, Seen>,
        was_cut: bool,
        reading: &Reading,
    ) -> Self {
        let mut difference = Self::default();
        let mut names = BTreeSet::new();
        let horizon = horizon(before, was_cut, reading);
        let is_within = |name: &str| horizon.is_none_or(|horizon| name <= horizon);
        for info in reading.locks.iter().take(MOST_LOCKS) {
            let name = info.name.as_str();
            names.insert(name);
            match before.get(name) {
                None if !is_within(name) => difference.changed.push(info.clone()),
                seen => difference.add(seen, info, reading.at_ms),
            }
        }
        for (name, seen) in before.iter().filter(|(name, _)| !names.contains(&***name)) {
            difference.gone.push(name.clone());
            if is_within(name) {
                difference.holders_of(Some(seen), None, reading.at_ms);
            }
        }
        difference
    }

    fn add(&mut self, seen: Option<&Seen>, info: &LockInfo, at_ms: u64) {
        match seen {
            Some(seen) if !differs(&seen.info, info) => {
                if is_renewed(seen, info, at_ms) {
                    self.renewed.push(info.clone());
                }
            }
            _ => {
                self.changed.push(info.clone());
                self.holders_of(seen, Some(info), at_ms);
            }
        }
    }

    /// The holders that have come and gone.
    fn holders_of(&mut self, seen: Option<&Seen>, now: Option<&LockInfo>, at_ms: u64) {
        let are_all = |info: &LockInfo| info.holding <= info.holders.len();
        if !seen.is_none_or(|seen| are_all(&seen.info)) || !now.is_none_or(are_all) {
            return;
        }
        let before = seen.map_or(&[][..], |seen| &seen.info.holders);
        let after = now.map_or(&[][..], |now| &now.holders);
        let is_in = |holder: &HolderInfo, list: &[HolderInfo]| {
            list.iter().any(|it| (it.owner, it.fence) == (holder.owner, holder.fence))
        };
        let waited_for = seen.is_some_and(|seen| seen.info.waiting > 0);
        if let Some(now) = now {
            let came = after.iter().filter(|holder| !is_in(holder, before));
            self.came.extend(came.map(|it| Hold::new(&now.name, it, at_ms, waited_for, at_ms)));
        }
        if let Some(seen) = seen {
            let left = before.iter().filter(|holder| !is_in(holder, after));
            let name = &seen.info.name;
            self.left.extend(left.map(|it| Hold::new(name, it, seen.at_ms, waited_for, at_ms)));
        }
    }

    /// The locks whose holders have gone: released, or forced, or their leases have ended, which some may have since they were
    /// forced.
    pub(super) fn without_former_holders(&self) -> BTreeSet<LockName> {
        self.left.iter().map(|hold| hold.name.clone()).collect()
    }

    /// For viewers.
    pub(super) fn to_json(&self) -> Value {
        let mut object = Map::new();
        if !self.changed.is_empty() {
            object.insert("set".into(), self.changed.iter().map(row).collect());
        }
        if !self.renewed.is_empty() {
            let leases = self.renewed.iter().map(|info| {
                let left = info.holders.iter().map(|it| whole_millis(it.lease_left));
                json!([info.name.as_str(), left.collect::<Vec<_>>()])
            });
            object.insert("renewed".into(), leases.collect());
        }
        if !self.gone.is_empty() {
            object.insert("gone".into(), json!(self.gone));
        }
        Value::Object(object)
    }
}

impl Hold {
    fn new(
        name: &LockName,
        holder: &HolderInfo,
        seen_ms: u64,
        was_waited_for: bool,
        at_ms: u64,
    ) -> Self {
        let until_ms = seen_ms.saturating_add(whole_millis(holder.lease_left));
        let (name, holder) = (name.clone(), holder.clone());
        Self { name, holder, until_ms, was_waited_for, is_over: until_ms <= at_ms }
    }
}

/// The last name up to which both lists have all locks; none if neither was cut. A lock behind it that is in one list only was
/// neither acquired nor released for certain: others may have moved it over the end of the list, which is ordered by name.
fn horizon<'a>(
    before: &'a BTreeMap<String, Seen>,
    was_cut: bool,
    reading: &'a Reading,
) -> Option<&'a str> {
    let before = before.keys().next_back().filter(|_| was_cut).map(String::as_str);
    let is_cut = reading.is_cut();
    let now = reading.locks.iter().take(MOST_LOCKS).next_back().filter(|_| is_cut);
    let now = now.map(|info| info.name.as_str());
    before.into_iter().chain(now).min()
}

/// A lock as the table of the page shows it: the queue is on the lock's own page.
pub(super) fn row(info: &LockInfo) -> Value {
    let mut row = shape::lock(info);
    if let Some(fields) = row.as_object_mut() {
        fields.remove("waiters");
        fields.retain(|_, value| !value.is_null());
    }
    row
}

/// Other holders, or another number of waiters.
fn differs(earlier: &LockInfo, now: &LockInfo) -> bool {
    // Of many holders, a list has those whose leases end first: others after every renewal.
    let are_all = |info: &LockInfo| info.holding <= info.holders.len();
    let holders = |info: &LockInfo| {
        let holders = info.holders.iter().filter(|_| are_all(info));
        holders.map(|it| (it.owner, it.fence, it.permits, it.entries)).collect::<Vec<_>>()
    };
    earlier.waiting != now.waiting
        || earlier.holding != now.holding
        || earlier.limit != now.limit
        || earlier.error != now.error
        || earlier.disagreement != now.disagreement
        || holders(earlier) != holders(now)
}

fn is_renewed(seen: &Seen, now: &LockInfo, at_ms: u64) -> bool {
    let until = |info: &LockInfo, at: u64| {
        let ends = info.holders.iter().map(|it| at.saturating_add(whole_millis(it.lease_left)));
        ends.max().unwrap_or_default()
    };
    until(now, at_ms) > until(&seen.info, seen.at_ms) + RENEWED_MS
}
