//! Mistakes in the URL: each is refused, with a sentence that says what to write.

use std::sync::Arc;

use tenure::Tenure;
use tenure_testkit::{Cluster, Server};

use super::fixture::{on_all, with};

/// I1: a URL named nodes of two clusters. Each client used the one that answered first, and two of them held one lock.
async fn refuses_two_clusters(cluster: Arc<Cluster>) {
    let flavor = Cluster::flavors().next().unwrap();
    let start = move |_: &Cluster| Cluster::builder(flavor).primaries(1).replicas(0).start();
    let other = with(&cluster, start).await;
    let [first, second] = [&cluster, &other].map(|it| it.url_of_one());
    let url = format!("{first},{}", second.trim_start_matches("redis+cluster://"));
    for _ in 0..5 {
        let refused = Tenure::connect(&url).await.map(drop).unwrap_err().to_string();
        assert!(refused.contains("different clusters"), "{refused}");
    }
}

#[test]
fn nodes_of_two_clusters_are_refused() {
    on_all(refuses_two_clusters);
}

/// A client of one server that was led to a node of a cluster connected if its own record was in a slot of that node, one time in
/// six. It then had the locks of that node alone, and would not have left it after a failover.
async fn names_the_right_scheme(cluster: Arc<Cluster>) {
    for node in (0..3).cycle().take(24) {
        let url = format!("redis://127.0.0.1:{}", cluster.nodes[node].port());
        let refused = Tenure::connect(&url).await.map(drop).unwrap_err().to_string();
        assert!(refused.contains("redis+cluster://"), "{refused}");
    }
    let server = Server::builder().on_port().start();
    let url = format!("redis+cluster://127.0.0.1:{}", server.port().unwrap());
    let refused = Tenure::connect(&url).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("write redis://"), "{refused}");
}

#[test]
fn the_wrong_scheme_is_refused() {
    on_all(names_the_right_scheme);
}
