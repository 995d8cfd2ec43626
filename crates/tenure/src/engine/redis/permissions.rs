//! The permissions of this user on the server.
//!
//! Each command is tried: a user with few permissions may not run `ACL DRYRUN` either, and older servers do not
//! have it. Each is sent on its own, in a form that changes nothing, so that a refusal can be attributed; within a
//! script, older servers do not name the command. SCRIPT LOAD and SUBSCRIBE are not tried: without them there is no
//! connection.

use super::keys;
use super::link::Link;
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

/// The commands for locks in Redisson's format.
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
    "HSET key field value field",
    "HSETNX key field value field",
    "INCR key x",
    "INCRBY key x",
    "PEXPIRE key 1000",
    "PING",
    "PTTL key",
    "PUBLISH channel nothing",
    "SCAN 0 COUNT 1",
    "SET key value XX",
    "TIME",
    "TYPE key",
    "ZADD key XX 1 field",
    "ZRANGE key 0 0",
    "ZRANGEBYSCORE key 0 0",
    "ZREM key field",
    "ZSCORE key field",
];

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
    for line in needed.iter().chain(sharded).chain(replicated) {
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
        return Ok(Finding::fine(
            "permissions",
            "this user may run every command that Tenure needs",
        ));
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

/// The command as it is sent, on a key and a channel like those of a lock.
fn command(line: &str, server: &Server) -> Command {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    for word in words {
        match word {
            "key" => command.push(keys::client(&format!("{}-doctor", server.client))),
            "channel" => command.push(format!("{}{}-doctor", keys::CHANNEL, server.client)),
            word => command.push(word),
        }
    }
    command
}

/// The missing permission, as an argument of `ACL SETUSER`; none for an error of another kind.
fn missing(line: &str, error: &str, is_redisson: bool) -> Option<String> {
    let about = error.strip_prefix("NOPERM")?;
    if about.contains("channel") && !about.contains("to run") {
        return Some(if is_redisson { "&*".to_owned() } else { format!("&{}*", keys::CHANNEL) });
    }
    if about.contains("key") && !about.contains("to run") {
        return Some(if is_redisson { "~*" } else { "~tenure:*" }.to_owned());
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
        assert_eq!(missing("GET key", key, true).unwrap(), "~*");
    }
}
