//! Answers after a silence, which other nodes confirm: what these may say, and which of them may be missing.

use std::sync::Arc;
use std::time::Duration;

use tenure_testkit::Cluster;
use tenure_testkit::resp::Reply;

use super::fixture::{LONG, THIRDS, connect, name_in, on_all, pass, run, with};

/// An operator introduced host names node by node. A node that some of the others named by its host, and the client by its
/// address, was taken for one that had been replaced: the outcome of every third operation was unknown.
async fn knows_a_node_by_its_id(cluster: Arc<Cluster>) {
    let client = connect(&cluster).await;
    let names: Vec<_> = THIRDS.iter().map(name_in).collect();
    for named in 0..3 {
        with(&cluster, move |cluster| {
            for (setting, value) in [
                ("cluster-announce-hostname", "localhost"),
                ("cluster-preferred-endpoint-type", "hostname"),
            ] {
                let set = cluster.command(named, &["CONFIG", "SET", setting, value]);
                assert_eq!(set, Reply::Simple("OK".into()));
            }
        })
        .await;
        for name in names.iter().cycle().take(9) {
            // Longer than an answer proves the next one.
            pass(Duration::from_millis(300)).await;
            let guard = client.lock(name).try_acquire().await.unwrap();
            guard.expect("it is free").release().await.unwrap();
        }
    }
}

#[test]
fn a_node_is_confirmed_under_any_name() {
    on_all(knows_a_node_by_its_id);
}

/// The replica of the only primary was killed. Nothing could replace the primary by then, but its answers were not used until the
/// cluster had given the replica up, because that did not confirm them.
async fn works_without_the_replica(cluster: Arc<Cluster>) {
    let client = connect(&cluster).await;
    let mut cluster = Arc::into_inner(cluster).unwrap();
    cluster.nodes[1].kill();
    for _ in 0..5 {
        pass(Duration::from_millis(300)).await;
        let guard = client.lock("x").try_acquire().await.unwrap();
        guard.expect("it is free").release().await.unwrap();
    }
}

#[test]
fn a_lone_primary_is_used_though_its_replica_is_down() {
    for flavor in Cluster::flavors() {
        run(flavor, works_without_the_replica, |it| it.primaries(1).node_timeout(LONG));
    }
}

/// I1: an operator has the replica of the only primary take over while that is stopped. It goes on, and its answer is not used,
/// though the replica may be silent by then: it was taken for one that is down when it did not answer within 100 ms.
async fn notices_a_takeover(cluster: Arc<Cluster>, is_silent: bool) {
    let client = connect(&cluster).await;
    drop(client.lock("x").acquire().await.unwrap());
    pass(Duration::from_millis(300)).await;
    cluster.nodes[0].pause(true);
    let lock = client.lock("x");
    let acquiring = tokio::spawn(async move { lock.try_acquire().await });
    let taken_over = |cluster: &Cluster| {
        assert_eq!(
            cluster.command(1, &["CLUSTER", "FAILOVER", "TAKEOVER"]),
            Reply::Simple("OK".into())
        );
        cluster.await_owner_other_than(0, 0);
    };
    with(&cluster, taken_over).await;
    // A new client, which need not notice that the old primary is silent: its connection lasts for two seconds.
    let theirs = super::fixture::acquire(&connect(&cluster).await, "x").await;
    cluster.nodes[1].pause(is_silent);
    cluster.nodes[0].pause(false);
    if let Ok(Some(guard)) = acquiring.await.unwrap() {
        assert!(guard.is_lost() || theirs.is_lost(), "I1: two clients hold x");
    }
    cluster.nodes[1].pause(false);
}

#[test]
fn a_lone_primary_that_was_replaced_is_not_believed() {
    for flavor in Cluster::flavors() {
        for is_silent in [false, true] {
            let test = move |cluster| notices_a_takeover(cluster, is_silent);
            run(flavor, test, |it| it.primaries(1).node_timeout(LONG));
        }
    }
}
