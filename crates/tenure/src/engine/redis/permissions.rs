//! The permissions of this user on the server.
//!
//! Each command is tried: a user with few permissions may not run `ACL DRYRUN` either, and older servers do not
//! have it. Each is sent on its own, in a form that changes nothing, so that a refusal can be attributed; within a
//! script, older servers do not name the command. SCRIPT LOAD and SUBSCRIBE are not tried: without them there is no
//! connection.

use super::keys;
use super::link::Link;
use super::protocol::LOST;
use super::resp::{Command, Reply};
use super::routes::Routes;
use super::server::Server;
use crate::engine::checkup::{Finding, Severity};
use crate::error::StoreError;

/// The commands that the engine sends, or a script calls, on a key that does not exist. None of them
/// changes anything: writes have a condition that is false, or one argument too many.
const HARMLESS: &[&str] = &[
    "DEL key",
    "EXISTS key",
    "EVALSHA 0000000000000000000000000000000000000000 1 key",
    "GET key",
    "HDEL key field",
    "HGET key field",
    "HLEN key",
    "HMGET key field",
    "HSET key field value field",
    "MGET key",
    "PEXPIRE key 1000",
    "PING",
    "PSETEX key 0 value",
    "PTTL key",
    "PUBLISH channel nothing",
    "PUBSUB NUMSUB channel",
    "RENAME key key",
    "SCAN 0 COUNT 1",
    "SET key value XX",
    "SETRANGE key -1 value",
    "TIME",
];

/// The commands for locks in Redisson's format. The keys of the locks have the names that the user gave them, so whether these
/// are allowed is not known here; those beside them are tried.
const REDISSON: &[&str] = &[
    "DECRBY key x",
    "DEL key",
    "EXISTS key",
    "EVALSHA 0000000000000000000000000000000000000000 1 key",
    "GET key",
    "HDEL key field",
    "HEXISTS key field",
    "HGET key field",
    "HGETALL key",
    "HINCRBY key field x",
    "HLEN key",
    "HMGET key field",
    "HSCAN key 0",
    "HSET key field value field",
    "HSETNX key field value field",
    "INCR key x",
    "INCRBY key x",
    "PEXPIRE key 1000",
    "PING",
    "PTTL key",
    "PTTL lease",
    "PTTL own",
    "PUBLISH channel nothing",
    "PUBLISH lost nothing",
    "SCAN 0 COUNT 1",
    "SET key value XX",
    "TIME",
    "TYPE key",
    "ZADD key XX 1 field",
    "ZCARD key",
    "ZRANGE key 0 0",
    "ZRANGEBYSCORE key 0 0",
    "ZREM key field",
    "ZSCORE key field",
];

/// The command that only locks in Redisson's format with fences need.
const FENCED: &[&str] = &["GET token"];

/// The commands that only a cluster needs.
const SHARDED: &[&str] = &["ASKING", "CLUSTER SLOTS", "SPUBLISH channel nothing"];

/// The command that only a client needs which waits for replicas. For none of them, so it returns at once.
const REPLICATED: &[&str] = &["WAIT 0 1"];

pub(super) async fn permissions(link: &Link, server: &Server) -> Result<Finding, StoreError> {
    let mut lacking = Vec::new();
    let is_cluster = matches!(server.routes, Routes::Cluster(_));
    let sharded = if is_cluster { SHARDED } else { &[] };
    let waits = server.routes.nodes().iter().any(|node| node.has_confirmations());
    let replicated = if waits { REPLICATED } else { &[] };
    let is_redisson = link.protocol.is_redisson();
    let needed = if is_redisson { REDISSON } else { HARMLESS };
    let fenced = if is_redisson && link.protocol.has_fences() { FENCED } else { &[] };
    for line in needed.iter().chain(fenced).chain(sharded).chain(replicated) {
        if let Reply::Error(error) = link.request(&command(line, server)).await?
            && let Some(right) = missing(line, &error, is_redisson)
            && !lacking.contains(&right)
        {
            lacking.push(right);
        }
    }
    if is_cluster && !may_subscribe(link, server).await? {
        lacking.push("+ssubscribe".to_owned());
    }
    if lacking.is_empty() {
        let mut found = "this user may run every command that Tenure needs".to_owned();
        if is_redisson {
            found += "; the keys of your locks, which have their names, must be allowed as well";
        }
        return Ok(Finding::fine("permissions", found));
    }
    let (user, rights) = (user(link).await?, lacking.join(" "));
    Ok(Finding::bad(
        "permissions",
        Severity::Problem,
        format!("the user {user} lacks {rights}"),
        format!("ACL SETUSER {user} {rights}"),
    ))
}

/// Whether this user may subscribe to channels in slots, as far as the server says so: on a connection for commands, this
/// cannot be tried.
async fn may_subscribe(link: &Link, server: &Server) -> Result<bool, StoreError> {
    let user = user(link).await?;
    let line = format!("ACL DRYRUN {user} SSUBSCRIBE channel");
    let reply = link.request(&command(&line, server)).await?;
    // Refused, it is not known.
    Ok(reply.text().is_none_or(|answer| answer == "OK"))
}

/// The command as it is sent, on keys and channels like those of a lock.
fn command(line: &str, server: &Server) -> Command {
    let is_redisson = server.routes.protocol().is_redisson();
    let id = format!("{}-doctor", server.client);
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    for word in words {
        match word {
            "key" => command.push(keys::client(&id)),
            "lease" => command.push(format!("{{{id}}}:{id}:rwlock_timeout:1")),
            "own" => command.push(format!("tenure_permits:{{{id}}}")),
            "token" => command.push(format!("redisson_lock_token:{{{id}}}")),
            "channel" if is_redisson => command.push(format!("redisson_lock__channel:{{{id}}}")),
            "channel" => command.push(format!("{}{id}", keys::CHANNEL)),
            "lost" => command.push(format!("{LOST}:{id}")),
            word => command.push(word),
        }
    }
    command
}

/// The missing permission, as an argument of `ACL SETUSER`; none for an error of another kind.
fn missing(line: &str, error: &str, is_redisson: bool) -> Option<String> {
    let about = error.strip_prefix("NOPERM")?;
    let has = |word| line.split(' ').any(|it| it == word);
    if about.contains("channel") && !about.contains("to run") {
        return Some(match is_redisson {
            _ if has("lost") => "&tenure:redisson:*".to_owned(),
            true => "&redisson_*".to_owned(),
            false => format!("&{}*", keys::CHANNEL),
        });
    }
    if about.contains("key") && !about.contains("to run") {
        let keys = [
            ("lease", "~*:rwlock_timeout:*"),
            ("own", "~tenure_*"),
            ("token", "~redisson_lock_token:*"),
        ];
        let rule = keys.iter().find(|(word, _)| has(word)).map_or("~tenure:*", |(_, rule)| rule);
        return Some(rule.to_owned());
    }
    let name = line.split(' ').next().unwrap_or_default();
    Some(format!("+{}", name.to_lowercase()))
}

async fn user(link: &Link) -> Result<String, StoreError> {
    let reply = link.request(&Command::new("ACL").arg("WHOAMI")).await?;
    Ok(reply.text().unwrap_or("USER").to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::protocol::Protocol;
    use super::super::scripts;
    use super::*;

    #[test]
    fn every_command_of_the_scripts_is_tried() {
        for (lines, protocol) in
            [(HARMLESS, Protocol::Tenure), (REDISSON, Protocol::Redisson { is_fenced: true })]
        {
            let lines = lines.iter().chain(SHARDED);
            let tried: BTreeSet<_> = lines.filter_map(|line| line.split(' ').next()).collect();
            for script in scripts::all().map(|script| script.on_server(true, protocol)) {
                for call in script.text.split("call('").skip(1) {
                    let name = call.split('\'').next().unwrap();
                    assert!(tried.contains(name), "{name}");
                }
            }
        }
    }

    #[test]
    fn refusals_name_the_rule_that_fixes_them() {
        let of = |line, error| missing(line, error, false).unwrap();
        let command = "NOPERM this user has no permissions to run the 'get' command";
        assert_eq!(of("GET key", command), "+get");
        let newer = "NOPERM User ann has no permissions to run the 'hset' command";
        assert_eq!(of("HSET key field value field", newer), "+hset");
        let key = "NOPERM this user has no permissions to access one of the keys used as arguments";
        assert_eq!(of("GET key", key), "~tenure:*");
        assert_eq!(of("GET key", "NOPERM No permissions to access a key"), "~tenure:*");
        let channel = "NOPERM this user has no permissions to access one of the channels used as \
                       arguments";
        assert_eq!(of("PUBLISH channel nothing", channel), "&tenure:wake:*");
        assert_eq!(missing("GET key", "NOSCRIPT No matching script", false), None);
        let redisson = |line, error| missing(line, error, true).unwrap();
        assert_eq!(redisson("GET key", key), "~tenure:*");
        assert_eq!(redisson("PTTL own", key), "~tenure_*");
        assert_eq!(redisson("PTTL lease", key), "~*:rwlock_timeout:*");
        assert_eq!(redisson("GET token", key), "~redisson_lock_token:*");
        assert_eq!(redisson("PUBLISH channel nothing", channel), "&redisson_*");
        assert_eq!(redisson("PUBLISH lost nothing", channel), "&tenure:redisson:*");
    }
}
