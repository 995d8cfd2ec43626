//! Everyday use: locks of all nodes, the doctor, and mistakes in the URL.

use std::sync::Arc;

use tenure::engine::Severity;
use tenure::{Tenure, Wait, acquire_all};
use tenure_testkit::Cluster;

use super::fixture::{THIRDS, connect, name_in, names_in, on_all, slot, until_queued, with};

/// Locks of all primaries are taken, listed and released together.
async fn spans_all_primaries(cluster: Arc<Cluster>) {
    let (ann, bob) = (connect(&cluster).await, connect(&cluster).await);
    let names: Vec<_> = (0..60).map(|number| format!("orders/{number}")).collect();
    let guards =
        acquire_all(names.iter().map(|name| ann.lock(name)), Wait::default()).await.unwrap();
    let counts = with(&cluster, |cluster| {
        let size = |node: usize| cluster.command(node, &["DBSIZE"]);
        [0, 1, 2].map(|node| format!("{:?}", size(node)))
    });
    assert!(counts.await.iter().all(|count| count != "Integer(0)"), "all primaries have some");
    let mut listed: Vec<_> =
        bob.list("orders/", 100).await.unwrap().iter().map(|lock| lock.name.to_string()).collect();
    let mut expected = names.clone();
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
    assert!(bob.lock("orders/7").try_acquire().await.unwrap().is_none());
    let shown = bob.lock("orders/7").inspect().await.unwrap();
    assert_eq!(shown.holders[0].about.pid, std::process::id(), "the client's record is found");
    guards.release().await.unwrap();
    assert!(bob.lock("orders/7").try_acquire().await.unwrap().is_some());
}

#[test]
fn locks_span_all_primaries() {
    on_all(spans_all_primaries);
}

async fn examines(cluster: Arc<Cluster>) {
    let client = connect(&cluster).await;
    let findings = client.checkup().await.unwrap();
    let found = |topic: &str| findings.iter().find(|it| it.topic == topic).unwrap();
    assert_eq!(found("slots").found, "3 primaries have all 16384 slots");
    assert_eq!(found("slots in transit").severity, Severity::Fine);
    assert_eq!(found("full coverage").severity, Severity::Fine);
    assert_eq!(found("permissions").severity, Severity::Fine);
    assert_eq!(found("clocks of the nodes").severity, Severity::Fine);
    with(&cluster, |cluster| cluster.begin_migration(7, 1)).await;
    let findings = client.checkup().await.unwrap();
    let moving = findings.iter().find(|it| it.topic == "slots in transit").unwrap();
    assert!(moving.found.contains("such as 7"), "{moving:?}");
}

#[test]
fn the_doctor_examines_a_cluster() {
    on_all(examines);
}

/// One node of the URL is enough, also if others are down.
async fn finds_the_others(cluster: Arc<Cluster>) {
    let port = cluster.nodes[4].port();
    let url = format!("redis+cluster://127.0.0.1:1,127.0.0.1:{port}");
    let client = Tenure::connect(&url).await.unwrap();
    for third in &THIRDS {
        drop(client.lock(name_in(third)).acquire().await.unwrap());
    }
    assert!(client.health().is_well());
}

#[test]
fn one_node_names_the_others() {
    on_all(finds_the_others);
}

/// The rights of a user for locks on a cluster, and no others: as docs/cli.md has them.
const RIGHTS: &str = "~tenure:* &tenure:wake:* +evalsha +script|load +subscribe +publish +ping +time +scan +get +set \
                      +psetex +setrange +del +mget +exists +pexpire +pttl +rename +hget +hset +hmget +hdel +hlen \
                      +pubsub +eval +spublish +ssubscribe +sunsubscribe +asking +cluster|slots";

/// A user with these rights holds, waits and is woken, also while a slot is in transit.
async fn has_enough_rights(cluster: Arc<Cluster>) {
    with(&cluster, |cluster| {
        let head =
            ["ACL", "SETUSER", "locks", "on", ">word", "resetkeys", "resetchannels", "-@all"];
        let words: Vec<_> = head.into_iter().chain(RIGHTS.split_whitespace()).collect();
        for node in 0..cluster.nodes.len() {
            assert_eq!(cluster.command(node, &words).text().as_deref(), Some("OK"));
        }
    })
    .await;
    let url = cluster.url().replace("//", "//locks:word@");
    let (ann, bob) = (Tenure::connect(&url).await.unwrap(), Tenure::connect(&url).await.unwrap());
    let name = name_in(&THIRDS[0]);
    let moved = slot(&name);
    let guard = ann.lock(&name).acquire().await.unwrap();
    let lock = bob.lock(&name);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until_queued(&ann, &name, 1).await;
    guard.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    with(&cluster, move |cluster| cluster.begin_migration(moved, 1)).await;
    let other = names_in(&(moved..=moved)).nth(1).unwrap();
    drop(ann.lock(other).acquire().await.unwrap());
    let findings = ann.checkup().await.unwrap();
    let rights = findings.iter().find(|it| it.topic == "permissions").unwrap();
    assert_eq!(rights.severity, Severity::Fine, "{rights:?}");
}

#[test]
fn the_rights_for_a_cluster_that_are_documented_are_enough() {
    on_all(has_enough_rights);
}
