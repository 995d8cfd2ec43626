//! Locks as JSON: the command's `--json` and the HTTP interface have the same objects. docs/cli.md has the schema.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tenure::engine::{Finding, Severity};
use tenure::{About, Fence, Handle, HolderInfo, LockInfo, LockName, Owner, WaiterInfo};

/// The names of the records of finished jobs begin with this.
pub const RECORDS: &str = "tenure-once/";

/// A lock.
#[must_use]
pub fn lock(info: &LockInfo) -> Value {
    json!({
        "name": info.name.as_str(),
        "kind": info.kind.map(|kind| kind.to_string()),
        "limit": info.limit,
        "holding": info.holding,
        "holders": info.holders.iter().map(|it| holder(info, it)).collect::<Vec<_>>(),
        "waiting": info.waiting,
        "waiters": info.waiters.iter().map(waiter).collect::<Vec<_>>(),
        "forced": info.forced.as_ref().map(|forced| json!({
            "at_ms": millis(forced.at),
            "by": client(&forced.by),
            "reason": &*forced.reason,
            "owners": owners(&forced.owners),
        })),
        "trouble": info.error.as_deref(),
        "disagreement": info.disagreement.as_deref(),
    })
}

/// Several locks, and whether there are more.
#[must_use]
pub fn locks(infos: &[LockInfo], more: bool) -> Value {
    json!({ "locks": infos.iter().map(lock).collect::<Vec<_>>(), "more": more })
}

/// Several locks as text, written one after the other: as one value, many locks take several times the memory of their text.
pub(crate) fn locks_text(infos: &[LockInfo], more: bool) -> String {
    let mut text = String::from("{\"locks\":[");
    for (at, info) in infos.iter().enumerate() {
        text.push_str(if at == 0 { "" } else { "," });
        text.push_str(&lock(info).to_string());
    }
    text + "],\"more\":" + if more { "true}" } else { "false}" }
}

/// A detached lock.
#[must_use]
pub fn handle(handle: &Handle, lease: Duration) -> Value {
    json!({
        "handle": handle.to_string(),
        "name": handle.name().as_str(),
        "owner": handle.owner().to_string(),
        "fence": fence(handle.fence()),
        "lease_ms": whole_millis(lease),
    })
}

/// The owners whose locks were released.
#[must_use]
pub fn released(name: &LockName, released: &[Owner]) -> Value {
    json!({ "name": name.as_str(), "released": owners(released) })
}

/// A finding of `tenure doctor`.
#[must_use]
pub fn finding(finding: &Finding) -> Value {
    json!({
        "topic": finding.topic,
        "severity": severity(finding),
        "found": finding.found,
        "advice": finding.advice,
    })
}

/// How serious a finding is, as a word.
#[must_use]
pub fn severity(finding: &Finding) -> &'static str {
    match finding.severity {
        Severity::Fine => "fine",
        Severity::Warning => "warning",
        _ => "problem",
    }
}

/// The description of a holder. Without a pid if the lock is released and lingers, because that process has ended.
#[must_use]
pub fn about<'a>(lock: &LockInfo, holder: &'a HolderInfo) -> Cow<'a, About> {
    if holder.entries > 0 && !lock.name.as_str().starts_with(RECORDS) {
        return Cow::Borrowed(&holder.about);
    }
    let mut about = (*holder.about).clone();
    about.pid = 0;
    Cow::Owned(about)
}

fn holder(lock: &LockInfo, holder: &HolderInfo) -> Value {
    json!({
        "owner": holder.owner.to_string(),
        "about": client(&about(lock, holder)),
        "permits": holder.permits,
        "entries": holder.entries,
        "fence": fence(holder.fence),
        "since_ms": known(holder.since).map(millis),
        "lease_left_ms": whole_millis(holder.lease_left),
    })
}

fn waiter(waiter: &WaiterInfo) -> Value {
    json!({
        "owner": waiter.owner.to_string(),
        "about": client(&waiter.about),
        "permits": waiter.permits,
        "since_ms": millis(waiter.since),
    })
}

/// A client: where it runs, and its note.
#[must_use]
pub fn client(about: &About) -> Value {
    json!({
        "host": &*about.host,
        "pid": (about.pid != 0).then_some(about.pid),
        "program": &*about.program,
        "note": about.note.as_deref(),
    })
}

fn owners(owners: &[Owner]) -> Vec<String> {
    owners.iter().map(ToString::to_string).collect()
}

/// When a hold began, if the store knows it.
#[must_use]
pub fn known(since: SystemTime) -> Option<SystemTime> {
    (since != UNIX_EPOCH).then_some(since)
}

/// A fence, if there is one.
#[must_use]
pub fn fence(fence: Fence) -> Option<u64> {
    (fence != Fence::NONE).then_some(fence.value())
}

/// A time: milliseconds since 1970.
#[must_use]
pub fn millis(moment: SystemTime) -> u64 {
    whole_millis(moment.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A duration in whole milliseconds.
#[must_use]
pub fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tenure::Tenure;
    use tenure::blocking::block_on;

    use super::*;

    #[test]
    fn a_list_that_is_written_piece_by_piece_is_the_same() {
        let tenure = Tenure::memory().unwrap();
        let _guards: Vec<_> =
            ["a", "b\"", "c"].map(|name| block_on(tenure.lock(name).acquire()).unwrap()).into();
        let infos = block_on(tenure.list("", 10)).unwrap();
        for (count, more) in [(0, false), (1, true), (3, false)] {
            let infos = &infos[..count];
            assert_eq!(locks_text(infos, more), locks(infos, more).to_string());
        }
    }
}
