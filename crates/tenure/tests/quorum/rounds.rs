//! A barrier that is used again and again.

use std::time::Duration;

use tenure::Tenure;

use super::ends::with_lease;

/// I7: parties that had passed were still in the queue of a node when the next round began, and were counted in it. That node opened too
/// early, so that one party left the other nodes before all had arrived there, and another one was left alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_barrier_opens_round_by_round() {
    let (nodes, ..) = with_lease(Duration::from_secs(30)).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(nodes.client().await);
    }
    let parties: Vec<_> = clients.into_iter().map(meet).map(tokio::spawn).collect();
    for party in parties {
        party.await.unwrap();
    }
    nodes.until_empty().await;
}

/// Each party goes on to the next round as soon as it has passed.
async fn meet(client: Tenure) {
    let barrier = client.barrier("x", 3);
    for round in 0..200 {
        let met = barrier.wait_within(Duration::from_secs(20)).await;
        met.unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
}
