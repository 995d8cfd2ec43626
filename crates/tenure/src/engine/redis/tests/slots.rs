//! The arguments of each script agree in its header, in its body, and in the command that the engine sends.

use std::collections::BTreeSet;

use super::super::batch::Batched;
use super::super::resp::Command;
use super::answers::{acquire, cancel, release, renewal};
use super::caller::{common, words};
use crate::owner::Owner;

pub(super) const ACQUIRE: &str = include_str!("../lua/acquire.lua");
pub(super) const RENEW: &str = include_str!("../lua/renew.lua");
pub(super) const RELEASE: &str = include_str!("../lua/release.lua");
pub(super) const CANCEL: &str = include_str!("../lua/cancel.lua");
const INSPECT: &str = include_str!("../lua/inspect.lua");
const FORCE: &str = include_str!("../lua/force.lua");
/// What a node of a quorum runs first has the marker, the last argument.
const QUORUM: [&str; 3] = [
    include_str!("../lua/quorum.lua"),
    include_str!("../lua/quorum_read.lua"),
    include_str!("../lua/quorum_acquire_read.lua"),
];
const PARTS: [&str; 10] = [
    include_str!("../lua/common.lua"),
    include_str!("../lua/plain_begin.lua"),
    include_str!("../lua/plain_result.lua"),
    include_str!("../lua/plain_end.lua"),
    include_str!("../lua/fast_path.lua"),
    include_str!("../lua/lock.lua"),
    include_str!("../lua/proposals.lua"),
    include_str!("../lua/state.lua"),
    include_str!("../lua/holders.lua"),
    include_str!("../lua/queue.lua"),
];

/// Every call carries this, whether the script needs all of it or not: one calling convention for all.
const COMMON: &str = "ARGV[1]";

/// The contract of a script: its leading comment, as one line.
pub(super) fn header(script: &str) -> String {
    let lines = script.lines().map_while(|line| line.strip_prefix("--"));
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

fn body(script: &str) -> String {
    let lines = script.lines().map(|line| line.split("--").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The slots of a table that a text names, such as `ARGV[3]` and `ARGV[i * 2 + 1]`.
fn slots(text: &str, table: &str) -> BTreeSet<String> {
    let opening = format!("{table}[");
    let parts = text.split(&opening).skip(1);
    let index = |part: &str| format!("{table}[{}]", part.split(']').next().unwrap_or_default());
    parts.map(index).collect()
}

/// How many arguments the header lists for each lock: "a, b, and c".
fn listed_for_each_lock(header: &str) -> usize {
    let Some((_, list)) = header.split_once("for each lock:") else { return 0 };
    let list = list.split("Returns").next().unwrap_or_default();
    let items: Vec<_> = list.split(", ").collect();
    let last = items.iter().position(|item| item.starts_with("and "));
    last.map_or(items.len(), |last| last + 1)
}

/// The slots used by a body with `count` arguments for each lock, after the common one.
fn used_for_each_lock(count: usize) -> BTreeSet<String> {
    let slot = |at: usize| match (at + 2).checked_sub(count) {
        Some(more) if count == 1 => format!("ARGV[i + {more}]"),
        Some(0) => format!("ARGV[i * {count}]"),
        Some(more) => format!("ARGV[i * {count} + {more}]"),
        None => format!("ARGV[i * {count} - {}]", count - at - 2),
    };
    (0..count).map(slot).collect()
}

#[test]
fn the_header_of_each_script_names_the_slots_of_its_body() {
    for script in [ACQUIRE, RENEW, RELEASE, CANCEL, INSPECT, FORCE] {
        let (header, body) = (header(script), body(script));
        let mut named = slots(&header, "ARGV");
        assert!(named.remove(COMMON), "{header}");
        let each = listed_for_each_lock(&header);
        named.extend(used_for_each_lock(each));
        let mut used = slots(&body, "ARGV");
        used.remove(COMMON);
        assert_eq!(named, used, "{header}");
        check_keys(&header, &body);
    }
    for check in QUORUM {
        assert_eq!(slots(&body(check), "ARGV"), BTreeSet::from(["ARGV[#ARGV]".to_owned()]));
    }
    for part in PARTS {
        let used = slots(&body(part), "ARGV");
        assert_eq!(used, BTreeSet::new(), "an included part knows no arguments");
    }
}

/// A script for many locks reads all of `KEYS`, a script for one lock only the first.
fn check_keys(header: &str, body: &str) {
    let named = slots(header, "KEYS");
    let is_for_many = named == BTreeSet::from(["KEYS[i]".to_owned()]);
    let reads_all = body.contains("#KEYS") || body.contains("ipairs(KEYS)");
    assert_eq!(is_for_many, reads_all, "{header}");
    let used = slots(body, "KEYS");
    assert!(used.iter().all(|slot| named.contains(slot)), "{used:?} in {header}");
}

#[test]
fn the_engine_sends_what_the_header_of_each_script_lists() {
    fn sent(operation: &impl Batched) -> usize {
        let mut command = Command::new("EVAL");
        operation.arguments(common("client"), &mut command);
        words(&command).len() - 1
    }
    let owner = Owner::new();
    assert_eq!(sent(&acquire("x", owner)), listed_for_each_lock(&header(ACQUIRE)));
    assert_eq!(sent(&renewal("x", owner)), listed_for_each_lock(&header(RENEW)));
    assert_eq!(sent(&release("x", owner)), listed_for_each_lock(&header(RELEASE)));
    assert_eq!(sent(&cancel("x", owner)), listed_for_each_lock(&header(CANCEL)));
}
