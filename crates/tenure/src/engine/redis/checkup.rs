//! The checks of `doctor` on a server: its settings, and their consequences for locks.

use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};

use super::cluster_checkup;
use super::link::Link;
use super::node::Node;
use super::permissions::permissions;
use super::redisson_checkup;
use super::resp::{Command, Reply};
use super::routes::Routes;
use super::sentinel::Asked;
use super::server::Server;
use crate::clock;
use crate::engine::ListRequest;
use crate::engine::checkup::{Finding, Severity};
use crate::error::StoreError;

/// With slower answers, short leases may not be renewed in time.
const SLOW: Duration = Duration::from_millis(50);

/// A larger difference between clocks means that one of them was set by hand, or will be.
const SKEWED: Duration = Duration::from_secs(2);

/// How many locks are checked, and how many of the unreadable ones are named.
const CHECKED: usize = 10_000;
const NAMED: usize = 5;

pub(super) async fn checkup(server: &Server) -> Result<Vec<Finding>, StoreError> {
    let mut findings = Vec::new();
    for node in server.routes.nodes() {
        let of_node = check_node(&node, server).await?;
        findings.push((node.commands.address.master.to_string(), of_node));
    }
    let mut findings = merge(findings);
    if let Routes::Cluster(cluster) = &server.routes {
        findings.extend(cluster_checkup::findings(cluster).await);
    }
    findings.extend(contents(server).await?);
    if !server.routes.protocol().is_redisson() {
        findings.extend(redisson_checkup::shared_locks(server).await?);
    }
    Ok(findings)
}

/// The findings of several servers: those that they share once, and the others with the server's address.
fn merge(of_nodes: Vec<(String, Vec<Finding>)>) -> Vec<Finding> {
    let count = of_nodes.len();
    let mut merged: Vec<(Finding, Vec<String>)> = Vec::new();
    for (node, findings) in of_nodes {
        for finding in findings {
            match merged.iter_mut().find(|(known, _)| *known == finding) {
                Some((_, nodes)) => nodes.push(node.clone()),
                None => merged.push((finding, vec![node.clone()])),
            }
        }
    }
    let shown = merged.into_iter().map(|(mut finding, nodes)| {
        if nodes.len() < count {
            finding.found = format!("{}: {}", nodes.join(", "), finding.found);
        }
        finding
    });
    let mut shown: Vec<_> = shown.collect();
    shown.sort_by_key(|finding| TOPICS.iter().position(|topic| *topic == finding.topic));
    shown
}

/// The topics in their order.
const TOPICS: [&str; 9] = [
    "permissions",
    "settings",
    "version",
    "persistence",
    "replication",
    "split brain",
    "eviction",
    "sentinels",
    "latency",
];

/// The findings about one server.
async fn check_node(node: &Node, server: &Server) -> Result<Vec<Finding>, StoreError> {
    let link = &node.commands;
    let mut findings = vec![permissions(link, server).await?];
    match info(link).await? {
        Some(info) => findings.extend(settings(link, &info).await),
        None => findings.push(Finding::bad(
            "settings",
            Severity::Warning,
            "this user may not run INFO: version, persistence and replication are not known",
            "run the doctor as a user with +info: locks do not need it",
        )),
    }
    findings.push(eviction(
        &setting(link, "maxmemory-policy").await,
        &setting(link, "maxmemory").await,
    ));
    if let Some(answers) = node.ask_sentinels().await {
        findings.push(sentinels_finding(&answers));
    }
    findings.extend(latency(link).await?);
    findings.extend(skew(link).await?);
    Ok(findings)
}

/// Findings from the reply to INFO.
async fn settings(link: &Link, info: &Info) -> Vec<Finding> {
    let read = |field: &str| info.get(field).map_or("", String::as_str);
    let mut findings = vec![version(&read)];
    findings.push(persistence(read("aof_enabled"), &setting(link, "appendfsync").await));
    let (role, replicas) = (read("role"), read("connected_slaves"));
    findings.push(replication(role, replicas));
    if role == "master" && replicas != "0" {
        let least = setting(link, "min-replicas-to-write").await;
        let lag = setting(link, "min-replicas-max-lag").await;
        // Before version 7, a server applies it to single commands, but not to scripts.
        let is_for_scripts =
            !read("valkey_version").is_empty() || !read("redis_version").starts_with("6.");
        findings.push(split_brain(least, lag, is_for_scripts));
    }
    findings
}

/// With fewer Sentinels, the failure of one leaves no majority.
const ENOUGH_SENTINELS: usize = 3;

/// A finding from the answers of all known Sentinels.
fn sentinels_finding(answers: &[Asked]) -> Finding {
    const TOPIC: &str = "sentinels";
    let mut named: Vec<_> =
        answers.iter().filter_map(|(_, it)| it.as_ref().ok()?.as_ref()).collect();
    let silent: Vec<_> = answers.iter().filter(|(_, it)| !matches!(it, Ok(Some(_)))).collect();
    named.sort();
    named.dedup();
    if named.len() > 1 {
        let named: Vec<_> = named.iter().map(ToString::to_string).collect();
        let found = format!("the Sentinels name different masters: {}", named.join(", "));
        let advice = "wait for the failover to end; if it does not, compare their configurations";
        return Finding::bad(TOPIC, Severity::Problem, found, advice);
    }
    if let Some((peer, answer)) = silent.first() {
        let (count, all) = (silent.len(), answers.len());
        let why = match answer {
            Err(error) => error.to_string(),
            Ok(_) => "it watches no master of that name".to_owned(),
        };
        let found =
            format!("{count} of {all} Sentinels do not name the master, such as {peer}: {why}");
        let advice = "without a majority no client can connect, and no failover happens: repair them, or \
                      remove those that no longer exist (SENTINEL RESET)";
        return Finding::bad(TOPIC, Severity::Warning, found, advice);
    }
    let found = format!("{} of {} name the same master", answers.len(), answers.len());
    if answers.len() < ENOUGH_SENTINELS {
        let advice = "run three Sentinels or more, each on a machine of its own: with fewer, the failure \
                      of one leaves no majority";
        return Finding::bad(TOPIC, Severity::Warning, found, advice);
    }
    Finding::fine(TOPIC, found)
}

pub(super) type Info = HashMap<String, String>;

/// The fields of INFO, or none if this user may not run it.
pub(super) async fn info(link: &Link) -> Result<Option<Info>, StoreError> {
    let reply = link.request(&Command::new("INFO")).await?;
    let Some(text) = reply.text() else { return Ok(None) };
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let fields = fields.map(|(field, value)| (field.to_owned(), value.trim().to_owned()));
    Ok(Some(fields.collect()))
}

/// A setting, or none if this user may not read it.
pub(super) async fn setting(link: &Link, name: &str) -> Option<String> {
    let command = Command::new("CONFIG").arg("GET").arg(name);
    let reply = link.request(&command).await.ok()?;
    Some(reply.array()?.get(1)?.text()?.to_owned())
}

/// CVE-2025-49844: a user who may run scripts can run any code. Fixed in these versions, and later.
const FIXED_REDIS: [[u32; 3]; 5] = [[6, 2, 20], [7, 2, 11], [7, 4, 6], [8, 0, 4], [8, 2, 2]];
const FIXED_VALKEY: [[u32; 3]; 3] = [[7, 2, 11], [8, 0, 6], [8, 1, 4]];

fn version<'a>(read: &impl Fn(&str) -> &'a str) -> Finding {
    let (valkey, redis) = (read("valkey_version"), read("redis_version"));
    let (name, version, fixed) = match valkey {
        "" => ("Redis", redis, &FIXED_REDIS[..]),
        valkey => ("Valkey", valkey, &FIXED_VALKEY[..]),
    };
    let found = format!("{name} {version}");
    if is_fixed(version, fixed) {
        return Finding::fine("version", found);
    }
    let advice = "as published, this version lets a user who may run scripts take over the server \
                  (CVE-2025-49844): update it, or make sure that its packager has fixed it";
    Finding::bad("version", Severity::Warning, found, advice)
}

fn is_fixed(version: &str, fixed: &[[u32; 3]]) -> bool {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let version: [u32; 3] = std::array::from_fn(|_| parts.next().unwrap_or(0));
    match fixed.iter().find(|[major, minor, _]| [*major, *minor] == version[..2]) {
        Some(first) => version >= *first,
        // A release series later than all of these began with the fix; one between them never got it.
        None => fixed.last().is_some_and(|last| version > *last),
    }
}

fn eviction(policy: &Option<String>, maxmemory: &Option<String>) -> Finding {
    match policy.as_deref() {
        None => Finding::bad(
            "eviction",
            Severity::Warning,
            "this user may not read maxmemory-policy",
            "make sure that it is noeviction: evicted locks are lost",
        ),
        Some(policy @ "noeviction") => Finding::fine("eviction", policy),
        Some(policy) if maxmemory.as_deref() == Some("0") => Finding::bad(
            "eviction",
            Severity::Warning,
            format!("maxmemory-policy is {policy}, without a maxmemory so far"),
            "set it to noeviction before a maxmemory is set: evicted locks are lost",
        ),
        Some(policy) => Finding::bad(
            "eviction",
            Severity::Problem,
            format!("maxmemory-policy is {policy}: under pressure the server throws locks away"),
            "set maxmemory-policy to noeviction, or use a server of its own for locks",
        ),
    }
}

fn persistence(aof: &str, fsync: &Option<String>) -> Finding {
    let fsync = fsync.as_deref().unwrap_or("unknown");
    // A server whose disk is slow keeps what it has not written for up to two seconds.
    let loss = match fsync {
        "everysec" => "a crash of the server may lose the last two seconds",
        _ => "a crash of the machine may lose the last half minute or more",
    };
    match aof {
        "1" if fsync == "always" => Finding::fine("persistence", "appendonly, fsync always"),
        "1" => Finding::bad(
            "persistence",
            Severity::Warning,
            format!("appendonly, fsync {fsync}: {loss}"),
            "fences stay correct; for exclusion as well, set appendfsync to always",
        ),
        _ => Finding::bad(
            "persistence",
            Severity::Warning,
            "no append-only file: a restart loses all holders",
            "set appendonly to yes, or check fences where the data lives",
        ),
    }
}

fn replication(role: &str, replicas: &str) -> Finding {
    match (role, replicas) {
        ("master", "0") => Finding::fine("replication", "a master without replicas"),
        ("master", count) => Finding::bad(
            "replication",
            Severity::Warning,
            format!("a master with {count} replicas, which follow it with a delay"),
            "after a failover two clients may hold a lock until a lease ends: check fences where the data lives",
        ),
        (role, _) => Finding::bad(
            "replication",
            Severity::Problem,
            format!("this is a {role}: it cannot grant locks"),
            "connect to the master",
        ),
    }
}

/// A master that is partitioned from its replicas continues to grant locks, unless its settings require replicas.
fn split_brain(least: Option<String>, lag: Option<String>, is_for_scripts: bool) -> Finding {
    let (Some(least), Some(lag)) = (least, lag) else {
        return Finding::bad(
            "split brain",
            Severity::Warning,
            "this user may not read min-replicas-to-write",
            "make sure that it is 1 or more: a master that is cut off must not grant locks",
        );
    };
    // A zero in either of them disables the check.
    if least == "0" || lag == "0" {
        return Finding::bad(
            "split brain",
            Severity::Warning,
            format!(
                "min-replicas-to-write is {least}, min-replicas-max-lag is {lag}: a master that is \
                 cut off continues to grant locks, while another one is promoted"
            ),
            "CONFIG SET min-replicas-to-write 1, CONFIG SET min-replicas-max-lag 10, and CONFIG \
             REWRITE to keep it",
        );
    }
    if !is_for_scripts {
        return Finding::bad(
            "split brain",
            Severity::Warning,
            "before Redis 7, min-replicas-to-write does not keep scripts from writing: a master that \
             is cut off continues to grant locks, while another one is promoted",
            "update the server, and check fences where the data lives",
        );
    }
    let found = format!("no lock is granted unless {least} replicas have answered within {lag} s");
    Finding::fine("split brain", found)
}

async fn latency(link: &Link) -> Result<Option<Finding>, StoreError> {
    let mut slowest = Duration::ZERO;
    for _ in 0..10 {
        let sent = clock::now();
        // A refusal would be too fast an answer: the finding on permissions reports it.
        if let Reply::Error(_) = link.request(&Command::new("PING")).await? {
            return Ok(None);
        }
        slowest = slowest.max(clock::now().since(sent));
    }
    let found = format!("the slowest of ten answers took {slowest:.1?}");
    if slowest < SLOW {
        return Ok(Some(Finding::fine("latency", found)));
    }
    let advice =
        "do not use leases below a second; look for slow commands, swapping and the network";
    Ok(Some(Finding::bad("latency", Severity::Warning, found, advice)))
}

/// Locks that cannot be read, because something else has written to their keys.
async fn contents(server: &Server) -> Result<Option<Finding>, StoreError> {
    let request = ListRequest { prefix: String::new(), limit: CHECKED };
    let locks = match server.list(request).await {
        // Refused: the finding on permissions reports it.
        Err(error) if error.is_answer() => return Ok(None),
        listed => listed?,
    };
    let bad: Vec<_> = locks.iter().filter(|lock| lock.error.is_some()).collect();
    let Some(first) = bad.first() else {
        let found = format!("{} locks in use, all readable", locks.len());
        return Ok(Some(Finding::fine("contents", found)));
    };
    let names: Vec<_> =
        bad.iter().take(NAMED).map(|lock| lock.name.as_str().escape_debug().to_string()).collect();
    let more = match bad.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let why = first.error.as_deref().unwrap_or_default();
    let found = format!("locks that cannot be read: {}{more} ({why})", names.join(", "));
    let advice = format!(
        "another program has written to their keys, such as `{}`: delete such a key with DEL, and give \
         locks a database of their own",
        server.routes.protocol().lock_key(&first.name).escape_debug()
    );
    Ok(Some(Finding::bad("contents", Severity::Problem, found, advice)))
}

async fn skew(link: &Link) -> Result<Option<Finding>, StoreError> {
    let reply = link.request(&Command::new("TIME")).await?;
    let parts = reply.array().unwrap_or_default().iter();
    let parts: Vec<u64> = parts.filter_map(|part| part.text()?.parse().ok()).collect();
    let [seconds, micros] = parts[..] else { return Ok(None) };
    let theirs = UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_micros(micros);
    let ours = UNIX_EPOCH + Duration::from_micros(clock::both().wall.as_micros());
    let skew = theirs.duration_since(ours).unwrap_or_else(|earlier| earlier.duration());
    let found = format!("the server's clock and ours differ by {skew:.1?}");
    if skew < SKEWED {
        return Ok(Some(Finding::fine("clock", found)));
    }
    let advice = "leases end by the server's clock: when it is set forward, they end early, and when it is set \
                  back, a crashed holder keeps its lock for longer; let both follow NTP, which slews";
    Ok(Some(Finding::bad("clock", Severity::Warning, found, advice)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_the_fix_are_known() {
        for (version, is_so) in [
            ("6.2.5", false),
            ("6.2.20", true),
            ("7.0.15", false),
            ("7.4.6", true),
            ("8.2.1", false),
            ("8.4.0", true),
        ] {
            assert_eq!(is_fixed(version, &FIXED_REDIS), is_so, "{version}");
        }
        assert!(is_fixed("9.1.2", &FIXED_VALKEY) && !is_fixed("8.1.0", &FIXED_VALKEY));
    }
}
