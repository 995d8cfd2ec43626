//! Any two majorities share a node: one server is one node, and no other server becomes one by itself.

use std::time::Duration;

use tenure::{Guard, Tenure};
use tenure_testkit::{Proxy, Server};

use super::fixture::{Nodes, acquire, client, host, pass, proxied, server, until, until_well, url};

/// While the lock is held, no other client gets it.
pub(crate) async fn assert_excluded(tenure: &Tenure, guard: &Guard) {
    for _ in 0..20 {
        let attempt = tenure.lock("x").try_acquire().await;
        assert!(!matches!(attempt, Ok(Some(_))) || guard.is_lost(), "I1: two holders");
        pass(Duration::from_millis(20)).await;
    }
}

fn through(proxies: &[Proxy]) -> String {
    url(proxies.iter().map(proxied))
}

/// The lock is held at the last two of three nodes.
async fn held_at_two(nodes: &Nodes) -> (Tenure, Guard, Vec<Proxy>) {
    let (holder, proxies) = nodes.distant_client().await;
    proxies[0].refuse(true);
    proxies[0].cut();
    let guard = acquire(&holder, "x").await;
    (holder, guard, proxies)
}

/// I1: an address cannot be reached at first, and leads to another node later: that node has one vote.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_has_one_vote_though_an_address_leads_to_it_later() {
    let nodes = Nodes::start(3).await;
    let (_holder, guard, _proxies) = held_at_two(&nodes).await;
    let proxies: Vec<_> = nodes.0.iter().map(Proxy::start).collect();
    proxies[1].refuse(true);
    let other = client(&through(&proxies)).await;
    proxies[1].forward_to(&nodes.0[0]);
    proxies[1].refuse(false);
    until("it is recognised", async || says(&other, "the same server").await).await;
    assert_excluded(&other, &guard).await;
}

/// I1: the same while the client is connected, as with a virtual address that moves.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_has_one_vote_though_an_address_moves_to_it() {
    let nodes = Nodes::start(3).await;
    let (_holder, guard, _proxies) = held_at_two(&nodes).await;
    let proxies: Vec<_> = nodes.0.iter().map(Proxy::start).collect();
    let other = client(&through(&proxies)).await;
    assert_excluded(&other, &guard).await;
    proxies[1].forward_to(&nodes.0[0]);
    proxies[1].cut();
    until("it is recognised", async || says(&other, "the same server").await).await;
    assert_excluded(&other, &guard).await;
}

/// Whether the doctor says this of a node.
async fn says(tenure: &Tenure, what: &str) -> bool {
    let findings = tenure.checkup().await.unwrap_or_default();
    findings.iter().any(|finding| finding.found.contains(what))
}

/// I1: a client names a server that is no node, in place of one. It works with the two others, and the fourth server never
/// votes, however long it is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_fourth_server_does_not_become_a_node() {
    let nodes = Nodes::start(3).await;
    let fourth = server();
    let other = client(&url([&nodes.0[0], &nodes.0[1], &fourth].map(host).into_iter())).await;
    acquire(&other, "y").await.release().await.unwrap();
    until("it is refused", async || says(&other, "not among those that were marked").await).await;
    let marker = fourth.connect().unwrap().command(&["GET", "tenure:quorum"]).unwrap();
    assert_eq!(marker.text(), None);
}

/// I1: a node was a replica of another one for a moment, and so has its data. It is the same process, with a marker.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_the_data_of_another_one_does_not_vote() {
    let nodes = Nodes::start(3).await;
    let (_holder, guard, _proxies) = held_at_two(&nodes).await;
    let other = nodes.client().await;
    assert_excluded(&other, &guard).await;
    copy_data(&nodes.0[0], &nodes.0[1]).await;
    assert_excluded(&other, &guard).await;
    assert_excluded(&nodes.client().await, &guard).await;
    drop(guard);
    until_well(&other).await;
    acquire(&other, "x").await.release().await.unwrap();
}

/// The second server gets the data of the first one, and is a master again.
async fn copy_data(from: &Server, to: &Server) {
    let mut replica = to.connect().unwrap();
    let port = from.port().unwrap().to_string();
    replica.command(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    until("the data is copied", async || {
        let info = to.connect().unwrap().command(&["INFO", "replication"]).unwrap();
        info.text().is_some_and(|info| info.contains("master_link_status:up"))
    })
    .await;
    replica.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
}

/// I1: an address leads to a new server, and the connections that are open stay where they are. The new one votes after the
/// quarantine; the old one must not do so any more by then.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_address_leads_elsewhere_does_not_vote() {
    let nodes = Nodes::start(3).await;
    let (tenure, proxies) = nodes.distant_client().await;
    acquire(&tenure, "x").await.release().await.unwrap();
    let other = server();
    proxies[2].forward_to(&other);
    until("it is expelled", async || says(&tenure, "it has lost its data").await).await;
    until("the old server is left", async || proxies[2].connections() == 0).await;
    acquire(&tenure, "x").await.release().await.unwrap();
}
