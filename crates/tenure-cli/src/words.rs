//! How things are told: names and notes of others are hostile text, and are escaped.

use std::fmt::Display;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tenure::{About, Handle, HolderInfo, LockInfo, Owner, WaiterInfo};

/// Text of others, on one line of a terminal: what controls it, or hides or reorders text, is
/// escaped.
pub(crate) fn plain(text: impl Display) -> String {
    let mut told = String::new();
    for c in text.to_string().chars() {
        match c {
            // Escaped in Rust, and harmless here.
            '\'' | '"' | '\\' => told.push(c),
            // Behind another character, because at the beginning accents would be escaped, too.
            c => told.extend(format!("x{c}").escape_debug().skip(1)),
        }
    }
    told
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

/// Who holds a lock, and for how long; none if nobody does.
pub(crate) fn holders(info: &LockInfo) -> Option<String> {
    let first = info.holders.first()?;
    Some(format!("{} for {}", who_all(info), ago(first.since)))
}

/// The first of the holders, and how many there are besides.
pub(crate) fn who_all(info: &LockInfo) -> String {
    let first = info.holders.first().map(|holder| who(&holder.about)).unwrap_or_default();
    match info.holders.len() {
        0 | 1 => first,
        count => format!("{first} and {} more", count - 1),
    }
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
            "owners": owners(&forced.owners),
        })),
        "trouble": info.trouble.as_deref(),
    })
}

/// A hold that was detached, for programs.
pub(crate) fn handle(handle: &Handle) -> Value {
    json!({
        "handle": handle.to_string(),
        "name": handle.name().as_str(),
        "owner": handle.owner().to_string(),
        "fence": handle.fence().value(),
        "lease_ms": whole_millis(handle.lease().duration()),
    })
}

pub(crate) fn owners(owners: &[Owner]) -> Vec<String> {
    owners.iter().map(ToString::to_string).collect()
}

fn holder(holder: &HolderInfo) -> Value {
    json!({
        "owner": holder.owner.to_string(),
        "about": about(&holder.about),
        "permits": holder.permits,
        "entries": holder.entries,
        "fence": holder.fence.value(),
        "since_ms": millis(holder.since),
        "lease_left_ms": whole_millis(holder.lease_left),
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
    whole_millis(moment.duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_on_its_line() {
        let hidden =
            ['\u{200b}', '\u{200f}', '\u{2028}', '\u{202e}', '\u{2066}', '\u{61c}', '\u{feff}'];
        for hostile in hidden.into_iter().chain(['\n', '\r', '\t', '\u{7}', '\u{1b}', '\u{9b}']) {
            let told = plain(format!("a{hostile}b"));
            assert!(told.starts_with("a\\") && told.is_ascii(), "{told:?}");
        }
        for harmless in ["orders/42 ü", "e\u{301}te\u{301}", "it's \"here\"", r"a\b", "文件"] {
            assert_eq!(plain(harmless), harmless);
        }
    }

    #[test]
    fn times_are_told_shortly() {
        let told = |seconds| for_people(Duration::from_secs(seconds));
        assert_eq!([told(3), told(42), told(75), told(7_260)], ["3.0s", "42s", "1m15s", "2h01m"]);
    }
}
