//! Marking nodes, and what is refused without it.

use std::time::Duration;

use tenure::engine::QuorumEngine;
use tenure::{Error, Tenure};

use super::fixture::{LONGEST, Nodes, host, server};

#[tokio::test(flavor = "multi_thread")]
async fn servers_without_a_marker_are_refused_with_what_to_do() {
    let nodes = Nodes((0..3).map(|_| server()).collect());
    let refused = Tenure::connect(&nodes.url()).await.unwrap_err().to_string();
    assert!(refused.contains("tenure quorum init"), "{refused}");
    nodes.mark(false).await;
    let said = nodes.mark(false).await;
    assert!(said[0].contains("exists already"), "{said:?}");
    nodes.client().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_in_use_are_not_marked() {
    let nodes = Nodes((0..3).map(|_| server()).collect());
    nodes.0[1].connect().unwrap().command(&["SET", "mine", "1"]).unwrap();
    let refused = QuorumEngine::mark_nodes(&nodes.url(), Some(LONGEST), false).await.unwrap_err();
    assert!(refused.to_string().contains("is not empty"), "{refused}");
    nodes.mark(true).await;
    // Two of these three belong to another quorum.
    let mixed = [host(&nodes.0[0]), host(&nodes.0[1]), host(&server())].join(",");
    let url = format!("redis+quorum://{mixed}");
    assert!(
        QuorumEngine::mark_nodes(&url, Some(LONGEST), false).await.is_ok(),
        "a majority has its marker"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_under_two_addresses_is_refused() {
    let nodes = Nodes::start(3).await;
    let port = nodes.0[0].port().unwrap();
    let twice = format!("redis+quorum://127.0.0.1:{port},localhost:{port},{}", host(&nodes.0[1]));
    let refused = Tenure::connect(&twice).await.unwrap_err().to_string();
    assert!(refused.contains("are the same server"), "{refused}");
    let three = format!("{},{},{}", host(&nodes.0[0]), host(&nodes.0[1]), host(&nodes.0[2]));
    let others = [server(), server()];
    let five = format!("redis+quorum://{three},{},{}", host(&others[0]), host(&others[1]));
    let refused = Tenure::connect(&five).await.unwrap_err().to_string();
    assert!(refused.contains("has 3 nodes"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_longer_than_the_quorum_allows_is_refused() {
    let nodes = Nodes::start(3).await;
    let tenure = nodes.client().await;
    let long = tenure.lock("x").lease(Duration::from_secs(10)).acquire().await.unwrap_err();
    assert!(
        matches!(long, Error::Unreachable { .. }) && long.to_string().contains("--max-lease"),
        "{long}"
    );
    drop(tenure.lock("x").lease(LONGEST).acquire().await.unwrap());
}
