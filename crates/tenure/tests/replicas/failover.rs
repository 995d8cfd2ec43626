//! A replica that has confirmed a lock takes over.

use std::time::Duration;

use tenure::{Error, Released, Tenure};
use tenure_testkit::{Cluster, Flavor, Sentinels};

use super::fixture::{Group, LONG, ms, on_all, pass, run};

const LEASE: Duration = Duration::from_secs(60);
const WITHIN: Duration = Duration::from_secs(20);

/// I1: the master is killed right after the acquire, and the replica is promoted by hand: it has the lock.
async fn a_promoted_replica(flavor: Flavor) {
    for number in 0..5 {
        let mut group = Group::start(flavor, 1).await;
        let name = format!("x{number}");
        let lock = group.client.lock(&*name).lease(LEASE).wait_replicas(1, WITHIN);
        let guard = lock.acquire().await.unwrap();
        group.master.kill();
        run(&group.replicas[0], &["REPLICAOF", "NO", "ONE"]);
        let other = Tenure::connect(&group.replicas[0].url()).await.unwrap();
        let info = other.lock(&*name).inspect().await.unwrap();
        assert_eq!(info.holders[0].owner, guard.owner());
        assert_eq!(info.holders[0].fence, guard.fence());
        assert!(other.lock(&*name).try_acquire().await.unwrap().is_none());
    }
}

#[test]
fn a_promoted_replica_has_the_lock() {
    on_all(a_promoted_replica);
}

/// I1, I9: Sentinels replace a killed master. The holder keeps its lock, other clients are refused, and as soon as another
/// replica is there, new locks are confirmed by it.
async fn a_failover_by_sentinels(flavor: Flavor) {
    let start = move || Sentinels::start(flavor, 2);
    let mut group = tokio::task::spawn_blocking(start).await.unwrap();
    let holder = Tenure::connect(&group.url()).await.unwrap();
    let other = Tenure::connect(&group.url()).await.unwrap();
    // Whichever is promoted has it.
    let lock = holder.lock("kept").lease(LEASE).wait_replicas(2, WITHIN);
    let guard = lock.acquire().await.unwrap();
    group.servers[0].kill();
    let promoted = move || {
        let before = group.servers[0].port();
        group.await_master_other_than(before);
        group
    };
    let group = tokio::task::spawn_blocking(promoted).await.unwrap();
    let refused = loop {
        match other.lock("kept").try_acquire().await {
            Err(Error::Unreachable { .. } | Error::Unknown { .. }) => pass(ms(50)).await,
            answered => break answered.unwrap(),
        }
    };
    assert!(refused.is_none(), "a second holder");
    guard.ensure_held().unwrap();
    let acquiring = async {
        let next = holder.lock("next").lease(LEASE).wait_replicas(1, WITHIN);
        loop {
            match next.acquire().await {
                Err(Error::Unreachable { .. } | Error::Unknown { .. } | Error::Lost(_)) => {}
                answered => break answered.unwrap(),
            }
        }
    };
    let next = tokio::time::timeout(LONG * 2, acquiring).await.expect("a replica is left");
    assert_eq!(next.release().await.unwrap(), Released::Now);
    assert_eq!(guard.release().await.unwrap(), Released::Now);
    drop(group);
}

#[test]
fn a_lock_survives_a_failover_by_sentinels() {
    on_all(a_failover_by_sentinels);
}

/// Each node of a cluster has replicas of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_a_cluster_are_confirmed_by_their_nodes() {
    for flavor in Cluster::flavors() {
        let cluster = tokio::task::spawn_blocking(move || Cluster::start(flavor)).await.unwrap();
        let client = Tenure::connect(&cluster.url()).await.unwrap();
        let lock = |name: &str, within| client.lock(name).wait_replicas(1, within);
        let names: Vec<_> = (0..12).map(|number| format!("x{number}")).collect();
        for name in &names {
            let guard = lock(name, WITHIN).acquire().await.unwrap();
            let key = format!("tenure:{{{name}}}");
            let replica = cluster.replica_of(cluster.owner(Cluster::slot(&key)));
            let mut connection = cluster.nodes[replica].connect().unwrap();
            connection.command(&["READONLY"]).unwrap();
            let found = connection.command(&["EXISTS", &key]).unwrap();
            assert_eq!(found, tenure_testkit::resp::Reply::Integer(1), "{name} on {flavor}");
            drop(guard);
        }
        let refused = client.lock("x0").wait_replicas(9, ms(100)).acquire().await.unwrap_err();
        let is_one = matches!(refused, Error::Unreplicated { replicas: 1, wanted: 9, .. });
        assert!(is_one, "{refused}");
    }
}
