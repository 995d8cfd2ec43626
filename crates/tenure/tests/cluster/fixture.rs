//! A cluster and its clients, and helpers.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tenure::{Guard, Tenure};
use tenure_testkit::{Cluster, ClusterBuilder, Flavor};

use crate::waiting::acquire_when_reachable;
pub(crate) use crate::waiting::{LONG, now, pass, until};

/// Longer than any of these tests: the lock must survive it.
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// Runs a test on all servers that have clusters, one after another. No node replaces another one by itself, however
/// busy the machine is.
pub(crate) fn on_all<T: Future<Output = ()>>(test: fn(Arc<Cluster>) -> T) {
    for flavor in Cluster::flavors() {
        run(flavor, test, |cluster| cluster.node_timeout(LONG));
    }
}

/// The same, and a node that does not answer is replaced within some seconds.
pub(crate) fn on_all_with_failover<T: Future<Output = ()>>(test: fn(Arc<Cluster>) -> T) {
    for flavor in Cluster::flavors() {
        run(flavor, test, |cluster| cluster);
    }
}

/// Runs a test on a cluster of its own, other than the usual one.
pub(crate) fn run<T: Future<Output = ()>>(
    flavor: Flavor,
    test: impl FnOnce(Arc<Cluster>) -> T,
    change: impl FnOnce(ClusterBuilder) -> ClusterBuilder,
) {
    eprintln!("on {flavor}");
    let cluster = Arc::new(change(Cluster::builder(flavor).full_coverage(false)).start());
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap().block_on(test(cluster));
}

pub(crate) async fn connect(cluster: &Cluster) -> Tenure {
    Tenure::connect(&cluster.url()).await.unwrap()
}

/// Does something that blocks with the cluster.
pub(crate) async fn with<T: Send + 'static>(
    cluster: &Arc<Cluster>,
    work: impl FnOnce(&Cluster) -> T + Send + 'static,
) -> T {
    let cluster = cluster.clone();
    tokio::task::spawn_blocking(move || work(&cluster)).await.unwrap()
}

/// Acquires as soon as the store can be reached.
pub(crate) async fn acquire(tenure: &Tenure, name: &str) -> Guard {
    acquire_when_reachable(&tenure.lock(name).lease(LEASE)).await
}

pub(crate) async fn until_queued(tenure: &Tenure, name: &str, count: usize) {
    until("the waiters are queued", async || {
        tenure.lock(name).inspect().await.is_ok_and(|lock| lock.waiting == count)
    })
    .await;
}

pub(crate) fn key(name: &str) -> String {
    format!("tenure:{{{name}}}")
}

pub(crate) fn slot(name: &str) -> u16 {
    Cluster::slot(key(name))
}

/// A name whose slot is among these.
pub(crate) fn name_in(slots: &RangeInclusive<u16>) -> String {
    names_in(slots).next().unwrap()
}

pub(crate) fn names_in(slots: &RangeInclusive<u16>) -> impl Iterator<Item = String> {
    (0u32..).map(|number| format!("n{number}")).filter(|name| slots.contains(&slot(name)))
}

/// The slots of each primary at the start.
pub(crate) const THIRDS: [RangeInclusive<u16>; 3] = [0..=5460, 5461..=10921, 10922..=16383];

/// Waits until all live replicas have a lock.
pub(crate) async fn until_replicated(cluster: &Arc<Cluster>, name: &str) {
    let key = key(name);
    with(cluster, move |cluster| {
        let owner = cluster.owner(Cluster::slot(&key));
        let has = |node: usize| {
            let mut connection = cluster.nodes[node].connect().unwrap();
            connection.command(&["READONLY"]).unwrap();
            connection.command(&["EXISTS", &key]).unwrap()
                == tenure_testkit::resp::Reply::Integer(1)
        };
        let replica = cluster.replica_of(owner);
        let started = now();
        while !has(replica) {
            assert!(started.elapsed() < LONG, "the replica does not get the lock");
            std::thread::yield_now();
        }
    })
    .await;
}
