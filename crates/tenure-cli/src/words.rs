//! How things are told: names and notes of others are hostile text, and are escaped.

use std::fmt::Display;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tenure::{About, HolderInfo, LockInfo, WaiterInfo};

/// Text of others, on one line of a terminal.
pub(crate) fn plain(text: impl Display) -> String {
    text.to_string().escape_debug().collect()
}

/// A time as people say it: two units at most.
pub(crate) fn for_people(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

pub(crate) fn ago(moment: SystemTime) -> String {
    for_people(now().duration_since(moment).unwrap_or_default())
}

#[expect(clippy::disallowed_methods, reason = "told to people, by the calendar")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// Who somebody is. It is escaped already.
pub(crate) fn who(about: &About) -> String {
    about.to_string()
}

/// A lock for programs; docs/cli.md has the schema.
pub(crate) fn lock(info: &LockInfo) -> Value {
    json!({
        "name": info.name.as_str(),
        "kind": info.kind.map(|kind| kind.to_string()),
        "limit": info.limit,
        "holders": info.holders.iter().map(holder).collect::<Vec<_>>(),
        "waiting": info.waiting,
        "waiters": info.waiters.iter().map(waiter).collect::<Vec<_>>(),
        "forced": info.forced.as_ref().map(|forced| json!({
            "at_ms": millis(forced.at),
            "by": about(&forced.by),
            "reason": &*forced.reason,
            "owners": forced.owners.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })),
    })
}

fn holder(holder: &HolderInfo) -> Value {
    json!({
        "owner": holder.owner.to_string(),
        "about": about(&holder.about),
        "permits": holder.permits,
        "entries": holder.entries,
        "fence": holder.fence.value(),
        "since_ms": millis(holder.since),
        "lease_left_ms": u64::try_from(holder.lease_left.as_millis()).unwrap_or(u64::MAX),
    })
}

fn waiter(waiter: &WaiterInfo) -> Value {
    json!({
        "owner": waiter.owner.to_string(),
        "about": about(&waiter.about),
        "permits": waiter.permits,
        "since_ms": millis(waiter.since),
    })
}

fn about(about: &About) -> Value {
    json!({
        "host": &*about.host,
        "pid": about.pid,
        "program": &*about.program,
        "note": about.note.as_deref(),
    })
}

fn millis(moment: SystemTime) -> u64 {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    u64::try_from(since).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_on_its_line() {
        for hostile in ["a\nb", "\u{1b}[31mred", "\u{202e}drow", "\u{7}", "\u{200f}"] {
            let told = plain(hostile);
            let is_tame = |c: char| !c.is_control() && !('\u{200b}'..='\u{202e}').contains(&c);
            assert!(told.chars().all(is_tame), "{told:?}");
        }
        assert_eq!(plain("orders/42 ü"), "orders/42 ü");
    }

    #[test]
    fn times_are_told_shortly() {
        let told = |seconds| for_people(Duration::from_secs(seconds));
        assert_eq!([told(3), told(42), told(75), told(7_260)], ["3.0s", "42s", "1m15s", "2h01m"]);
    }
}
