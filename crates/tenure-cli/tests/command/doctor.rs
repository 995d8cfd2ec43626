//! `tenure doctor`: problems of a store, and their remedies.

use std::time::Duration;

use serde_json::Value;
use tenure_testkit::{Clock, Flavor, Server};

use crate::fixture::{Fixture, until};

/// The rights of a user for locks, and no others: as docs/cli.md has them.
const RIGHTS: &str = "~tenure:* &tenure:wake:* +evalsha +script|load +subscribe +publish +ping \
                      +time +scan +get +set +psetex +setrange +del +mget +exists +pexpire +pttl \
                      +rename +hget +hset +hmget +hdel +hlen +pubsub";

fn findings(fixture: &Fixture) -> Value {
    let output = fixture.output(&["doctor", "--json"]);
    assert!(output.stderr.is_empty(), "{output:?}");
    let mut message: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = message["findings"].take();
    let is_ill = list.as_array().unwrap().iter().any(|it| it["severity"] == "problem");
    assert_eq!(output.status.code(), Some(i32::from(is_ill)), "{list}");
    list
}

/// The finding on a topic, and its severity.
fn finding(findings: &Value, topic: &str) -> (String, String, String) {
    let found = findings.as_array().unwrap().iter().find(|it| it["topic"] == topic);
    let found = found.unwrap_or_else(|| panic!("nothing on {topic}: {findings}"));
    let field = |name: &str| found[name].as_str().unwrap().to_owned();
    (field("severity"), field("found"), field("advice"))
}

fn severity(findings: &Value, topic: &str) -> String {
    finding(findings, topic).0
}

fn command(server: &Server, line: &str) {
    let words: Vec<_> = line.split(' ').collect();
    let reply = server.connect().unwrap().command(&words).unwrap();
    assert_eq!(reply.text().as_deref(), Some("OK"), "{line}: {reply:?}");
}

#[test]
fn a_store_without_a_server_is_tried() {
    let fixture = Fixture::local();
    let said = fixture.said(&["doctor"]);
    let sentence = "a lock was acquired, renewed, waited for, shown and released";
    assert!(said.starts_with(&format!("fine     operations: {sentence}\n")), "{said}");
    let findings = findings(&fixture);
    for topic in
        ["operations", "folder", "file system", "space", "store", "records", "clients", "latency"]
    {
        assert_eq!(severity(&findings, topic), "fine", "{findings}");
    }
    assert_eq!(
        fixture.json(&["ls", "--json"])["locks"],
        Value::Array(Vec::new()),
        "nothing is left"
    );
}

#[test]
fn the_doctor_finds_what_is_wrong() {
    for flavor in Flavor::wanted() {
        let mut fixture = Fixture::of(Server::builder().flavor(flavor).start());
        let healthy = findings(&fixture);
        for topic in ["operations", "permissions", "eviction", "replication", "latency", "clock"] {
            assert_eq!(severity(&healthy, topic), "fine", "{flavor}: {healthy}");
        }
        let contents = finding(&healthy, "contents");
        assert_eq!((&*contents.0, &*contents.1), ("fine", "0 locks in use, all readable"));
        assert_eq!(severity(&healthy, "persistence"), "warning", "{flavor}: {healthy}");
        assert!(healthy.as_array().unwrap().iter().all(|it| it["topic"] != "split brain"));
        for setting in ["maxmemory-policy allkeys-lru", "maxmemory 100mb"] {
            command(fixture.server(), &format!("CONFIG SET {setting}"));
        }
        let ill = fixture.output(&["doctor"]);
        assert_eq!(ill.status.code(), Some(1));
        let message = String::from_utf8(ill.stdout).unwrap();
        let found = "problem  eviction: maxmemory-policy is allkeys-lru: under pressure the server \
                     throws locks away\n         set maxmemory-policy to noeviction, or use a \
                     server of its own for locks\n";
        assert!(message.contains(found), "{flavor}: {message}");
    }
}

/// A server whose clock was set: leases end by it, and the finding says so.
#[test]
fn the_doctor_compares_the_clocks() {
    let clock = Clock::new();
    let fixture = Fixture::of(Server::builder().program(clock.program()).start());
    assert_eq!(severity(&findings(&fixture), "clock"), "fine");
    clock.set_ahead(Duration::from_secs(3_600));
    let (severity, found, advice) = finding(&findings(&fixture), "clock");
    assert_eq!(severity, "warning", "{found}");
    assert!(found.starts_with("the server's clock and ours differ by 3"), "{found}");
    assert!(advice.starts_with("leases end by the server's clock: when it is set"), "{advice}");
}

/// R18: the refused operation, and the right to grant, on servers old and new.
#[test]
fn the_doctor_names_the_right_that_is_missing() {
    for flavor in Flavor::wanted() {
        let mut fixture = Fixture::of(Server::builder().flavor(flavor).start());
        for right in ["evalsha", "hset", "rename", "hlen", "publish", "scan", "ping"] {
            command(fixture.server(), &format!("ACL SETUSER default +@all -{right}"));
            let findings = findings(&fixture);
            let expected = (
                "problem".to_owned(),
                format!("the user default lacks +{right}"),
                format!("ACL SETUSER default +{right}"),
            );
            assert_eq!(finding(&findings, "permissions"), expected, "{flavor}");
        }
        // Without these, there is no connection.
        for right in ["script", "subscribe", "set"] {
            command(fixture.server(), &format!("ACL SETUSER default +@all -{right}"));
            let (severity, found, advice) = finding(&findings(&fixture), "operations");
            assert_eq!(severity, "problem");
            assert!(found.contains("NOPERM") && found.contains(right), "{flavor}: {found}");
            assert_eq!(advice, "grant this user what docs/cli.md lists, with ACL SETUSER");
        }
    }
}

/// R18: the documented rights are enough, and the findings say which checks need others.
#[test]
fn the_rights_that_are_documented_are_enough() {
    for flavor in Flavor::wanted() {
        let mut fixture = Fixture::of(Server::builder().flavor(flavor).start());
        let rights = format!("ACL SETUSER default resetkeys resetchannels -@all {RIGHTS}");
        command(fixture.server(), &rights);
        let findings = findings(&fixture);
        for topic in ["operations", "permissions", "latency", "clock"] {
            assert_eq!(severity(&findings, topic), "fine", "{flavor}: {findings}");
        }
        for topic in ["settings", "eviction"] {
            assert_eq!(severity(&findings, topic), "warning", "{flavor}: {findings}");
        }
        fixture.said(&["acquire", "-s", "x"]);
        assert!(fixture.said(&["ls"]).contains("read-write lock"));
        // Long enough to connect on a busy machine: the time counts for that, too.
        assert_eq!(fixture.code(&["run", "-x", "-w", "1s", "x", "--", "true"]), 75);
        fixture.said(&["release", "--force", "x", "--reason", "a test", "--yes"]);
    }
    let documented = include_str!("../../../../docs/cli.md");
    let documented = documented.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(documented.contains(RIGHTS), "docs/cli.md does not list {RIGHTS}");
}

/// R18: a master that goes on alone after a partition is distinguished from one that does not.
#[test]
fn the_doctor_looks_for_split_brain() {
    for flavor in Flavor::wanted() {
        let (mut master, _replica) = master_and_replica(flavor);
        let alone = findings(&master);
        assert_eq!(severity(&alone, "replication"), "warning", "{flavor}: {alone}");
        let (severity, found, advice) = finding(&alone, "split brain");
        let settings =
            "min-replicas-to-write is 0, min-replicas-max-lag is 10: a master that is cut";
        assert!(severity == "warning" && found.starts_with(settings), "{flavor}: {found}");
        for line in advice.split(", ").filter(|part| part.starts_with("CONFIG SET ")) {
            command(master.server(), line);
        }
        until("followed", || replication(&mut master).contains("min_slaves_good_slaves:1"));
        let (severity, found, _) = finding(&findings(&master), "split brain");
        if flavor == Flavor::Redis6 {
            assert!(severity == "warning" && found.starts_with("before Redis 7"), "{found}");
            continue;
        }
        let expected = "no lock is granted unless 1 replicas have answered within 10 s";
        assert_eq!((&*severity, &*found), ("fine", expected), "{flavor}");
        command(master.server(), "CONFIG SET min-replicas-max-lag 0");
        assert_eq!(finding(&findings(&master), "split brain").0, "warning", "switched off by it");
    }
}

/// R18: a master with too few replicas, and a replica, grant nothing, and the doctor says why.
#[test]
fn a_server_that_cannot_grant_is_reported() {
    for flavor in Flavor::wanted() {
        let (mut master, replica) = master_and_replica(flavor);
        let (severity, found, advice) = finding(&findings(&replica), "operations");
        assert!(severity == "problem" && found.contains("READONLY"), "{flavor}: {found}");
        assert_eq!(advice, "this is a replica: connect to the master");

        command(master.server(), "CONFIG SET min-replicas-to-write 2");
        let refused = master.refused(69, &["run", "x", "--", "echo", "no"]);
        assert!(refused.contains("NOREPLICAS"), "{flavor}: {refused}");
        let (severity, found, advice) = finding(&findings(&master), "operations");
        assert!(severity == "problem" && found.contains("NOREPLICAS"), "{flavor}: {found}");
        assert!(advice.starts_with("too few replicas follow this master"), "{flavor}: {advice}");
    }
}

/// A server, and a replica of it.
fn master_and_replica(flavor: Flavor) -> (Fixture, Fixture) {
    // Without delay: by default a master waits for more replicas to sync.
    let server = Server::builder().flavor(flavor).arg("--repl-diskless-sync-delay", "0").on_port();
    let (mut master, mut replica) =
        (Fixture::of(server.clone().start()), Fixture::of(server.start()));
    let port = master.server().port().unwrap();
    command(replica.server(), &format!("REPLICAOF 127.0.0.1 {port}"));
    until("a replica", || replication(&mut replica).contains("master_link_status:up"));
    until("counted", || replication(&mut master).contains("state=online"));
    (master, replica)
}

fn replication(fixture: &mut Fixture) -> String {
    let mut connection = fixture.server().connect().unwrap();
    connection.command(&["INFO", "replication"]).unwrap().text().unwrap()
}
