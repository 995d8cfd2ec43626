//! A node that is down, or stalls: what clients can do without it, and what they must not do to the others.

use std::sync::Arc;
use std::time::Duration;

use tenure::Tenure;
use tenure::engine::Severity;
use tenure_testkit::Cluster;

use super::fixture::{
    LEASE, LONG, THIRDS, connect, name_in, names_in, on_all, pass, run, until_queued, with,
};

/// The sum of a counter of all live nodes.
pub(crate) fn counter(cluster: &Cluster, section: &str, field: &str) -> u64 {
    let live = (0..cluster.nodes.len()).filter(|node| cluster.nodes[*node].is_live());
    let read = |node: usize| {
        let text = cluster.command(node, &["INFO", section]).text().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
        let value = line.unwrap_or("0").trim_start_matches("calls=");
        let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
        value[..end].parse::<u64>().unwrap()
    };
    live.map(read).sum()
}

async fn connections(cluster: &Arc<Cluster>) -> u64 {
    with(cluster, |cluster| counter(cluster, "stats", "total_connections_received")).await
}

async fn questions(cluster: &Arc<Cluster>) -> u64 {
    with(cluster, |cluster| counter(cluster, "commandstats", "cmdstat_cluster|slots")).await
}

/// The node with the store's id, and perhaps the records of clients, is down: others connect, and take, inspect and release
/// locks of the other nodes.
async fn connects_without_a_node(cluster: Arc<Cluster>) {
    let before = connect(&cluster).await;
    let dead = cluster.owner(Cluster::slot("tenure:store"));
    let url = cluster.url();
    let name = name_in(&THIRDS[(dead + 1) % 3]);
    let held = before.lock(&name).lease(LEASE).acquire().await.unwrap();
    let mut cluster = Arc::into_inner(cluster).unwrap();
    cluster.nodes[dead].kill();
    for _ in 0..5 {
        let client = Tenure::connect(&url).await.unwrap();
        assert_eq!(client.lock(&name).inspect().await.unwrap().holding, 1);
        assert!(client.lock(&name).try_acquire().await.unwrap().is_none());
    }
    held.release().await.unwrap();
}

#[test]
fn clients_connect_though_a_node_is_down() {
    for flavor in Cluster::flavors() {
        run(flavor, connects_without_a_node, |it| it.replicas(0));
    }
}

/// A primary stalls with calls for many slots in flight. Its late answers are confirmed by one question, not by one each.
async fn stalls(cluster: Arc<Cluster>) {
    let client = connect(&cluster).await;
    let names: Vec<_> = (0..300u16).map(|slot| name_in(&(slot..=slot))).collect();
    let before = connections(&cluster).await;
    cluster.nodes[0].pause(true);
    let tries: Vec<_> = names
        .iter()
        .map(|name| {
            let lock = client.lock(name);
            tokio::spawn(async move { lock.try_acquire().await })
        })
        .collect();
    pass(Duration::from_millis(600)).await;
    cluster.nodes[0].pause(false);
    for attempt in tries {
        assert!(attempt.await.unwrap().unwrap().is_some(), "confirmed, and so believed");
    }
    let made = connections(&cluster).await - before;
    assert!(made < 150, "{made} connections");
}

#[test]
fn late_answers_are_confirmed_together() {
    on_all(stalls);
}

/// A user who may not subscribe in slots waits, and is served when it polls. It does so seldom, and the doctor names the right.
async fn may_not_subscribe(cluster: Arc<Cluster>) {
    let user = ["ACL", "SETUSER", "locks", "on", ">word", "~*", "&*", "+@all", "-ssubscribe"];
    with(&cluster, move |cluster| {
        for node in 0..cluster.nodes.len() {
            assert_eq!(cluster.command(node, &user).text().as_deref(), Some("OK"));
        }
    })
    .await;
    let url = cluster.url().replace("//", "//locks:word@");
    let (ann, bob) = (Tenure::connect(&url).await.unwrap(), Tenure::connect(&url).await.unwrap());
    let name = name_in(&THIRDS[0]);
    let held = ann.lock(&name).lease(LEASE).acquire().await.unwrap();
    let lock = bob.lock(&name);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until_queued(&ann, &name, 1).await;
    let before = questions(&cluster).await;
    pass(Duration::from_secs(3)).await;
    let asked = questions(&cluster).await - before;
    assert!(asked < 30, "the nodes were asked {asked} times in 3 s");
    held.release().await.unwrap();
    drop(tokio::time::timeout(LONG, waiting).await.expect("granted").unwrap().unwrap());
    let findings = ann.checkup().await.unwrap();
    let rights = findings.iter().find(|it| it.topic == "permissions").unwrap();
    assert_eq!(rights.severity, Severity::Problem);
    assert!(rights.advice.contains("+ssubscribe"), "{rights:?}");
}

#[test]
fn a_user_who_may_not_subscribe_polls() {
    on_all(may_not_subscribe);
}

/// A client whose record is at a dead node is unknown; its locks can be inspected.
async fn inspects_without_a_record(cluster: Arc<Cluster>) {
    let mut clients = Vec::new();
    for _ in 0..6 {
        clients.push(connect(&cluster).await);
    }
    let observer = connect(&cluster).await;
    let names: Vec<_> = names_in(&THIRDS[2]).take(6).collect();
    let mut held = Vec::new();
    for (client, name) in clients.iter().zip(&names) {
        held.push(client.lock(name).lease(LEASE).acquire().await.unwrap());
    }
    let mut cluster = Arc::into_inner(cluster).unwrap();
    cluster.nodes[0].kill();
    for name in &names {
        assert_eq!(observer.lock(name).inspect().await.unwrap().holding, 1);
    }
}

#[test]
fn locks_are_inspected_though_a_node_is_down() {
    for flavor in Cluster::flavors() {
        run(flavor, inspects_without_a_record, |it| it.replicas(0));
    }
}

/// A list without the locks of one node would be none. The error said that a connection was refused, and not what that meant.
async fn lists_nothing_without_a_node(cluster: Arc<Cluster>) {
    let client = connect(&cluster).await;
    let held = client.lock(name_in(&THIRDS[0])).lease(LEASE).acquire().await.unwrap();
    let mut cluster = Arc::into_inner(cluster).unwrap();
    cluster.nodes[1].kill();
    let missing =
        format!("the locks of the node 127.0.0.1:{} are missing", cluster.nodes[1].port());
    let error = client.list("", 10).await.unwrap_err().to_string();
    assert!(error.contains(&missing) && error.contains("inspected by name"), "{error}");
    assert_eq!(client.lock(held.name()).inspect().await.unwrap().holding, 1);
}

#[test]
fn a_list_without_a_node_names_it() {
    for flavor in Cluster::flavors() {
        run(flavor, lists_nothing_without_a_node, |it| it.replicas(0));
    }
}

/// A URL named twenty nodes that were gone, and three that were not: half of the clients could not connect, because only some
/// were asked. And late answers were not confirmed, because the nodes that were gone counted among those that did not answer.
async fn ignores_nodes_that_are_gone(cluster: Arc<Cluster>) {
    let gone: Vec<_> = (1..=20).map(|port| format!("127.0.0.1:{port},")).collect();
    let url = cluster.url().replace("://", &format!("://{}", gone.concat()));
    for _ in 0..10 {
        drop(Tenure::connect(&url).await.unwrap());
    }
    let client = Tenure::connect(&url).await.unwrap();
    with(&cluster, |cluster| drop(cluster.command(0, &["CLIENT", "PAUSE", "400", "WRITE"]))).await;
    let acquired = client.lock(name_in(&THIRDS[0])).try_acquire().await;
    assert!(acquired.unwrap().is_some(), "confirmed, and so believed");
}

#[test]
fn nodes_of_the_url_that_are_gone_do_not_matter() {
    on_all(ignores_nodes_that_are_gone);
}
