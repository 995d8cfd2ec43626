//! Clusters and failovers: throughput beside one server, and how soon a client uses a new master.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tenure::Tenure;
use tenure_testkit::resp::{Connection, Reply};
use tenure_testkit::{Cluster, Flavor, Sentinels, Server};
use tokio::runtime::Runtime;

use super::memory::{now, pause};
use super::pairs::{Round, runtime};
use super::redis::{server, verbose};

const CALLERS: usize = 512;

/// Pairs per second of 512 tasks on three primaries, over those on one server, in turns.
pub(crate) fn cluster_throughput() -> Vec<f64> {
    let (one, cluster) = (server(), Cluster::builder(Flavor::Redis).replicas(0).start());
    let runtime = runtime();
    let connect = |url: &str| {
        let connecting = Tenure::builder().read_on_this_runtime().connect(url);
        runtime.block_on(async { connecting.await.expect("a client") })
    };
    let (one, many) = (connect(&one.url()), connect(&cluster.url()));
    let round = || {
        let of_one = pairs(&runtime, &one);
        let of_many = pairs(&runtime, &many);
        verbose(&format!("cluster {of_many:.0}/s, one server {of_one:.0}/s"));
        of_many / of_one
    };
    round();
    (0..5).map(|_| round()).collect()
}

fn pairs(runtime: &Runtime, tenure: &Tenure) -> f64 {
    let locks = (0..CALLERS).map(|number| tenure.lock(format!("orders/{number}")));
    Round::of(runtime, locks).pairs_per_second()
}

/// Seconds from the first write that the new master of Sentinels accepts to the first lock.
pub(crate) fn failover_gap_sentinel() -> Vec<f64> {
    let round = || {
        let mut group = Sentinels::start(Flavor::Redis, 1);
        let (url, replica) = (group.url(), port(&group.servers[1]));
        gap(&url, "x", replica, || group.servers[0].kill())
    };
    (0..3).map(|_| round()).collect()
}

/// The same for a primary of a cluster.
pub(crate) fn failover_gap_cluster() -> Vec<f64> {
    let round = || {
        let mut cluster = Cluster::start(Flavor::Redis);
        let primary = cluster.owner(Cluster::slot("tenure:{x}"));
        let replica = cluster.nodes[cluster.replica_of(primary)].port();
        let url = cluster.url();
        gap(&url, "x", replica, || cluster.nodes[primary].kill())
    };
    (0..3).map(|_| round()).collect()
}

fn port(server: &Server) -> u16 {
    server.port().expect("it is on a port")
}

/// Seconds between the first write that the replica accepts and the first lock, after the master was killed.
fn gap(url: &str, name: &str, replica: u16, kill: impl FnOnce()) -> f64 {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().expect("a runtime");
    let tenure = runtime.block_on(Tenure::connect(url)).expect("a client");
    let lock = tenure.lock(name);
    runtime.block_on(async { drop(lock.acquire().await.expect("a free lock")) });
    let is_killed = AtomicBool::new(false);
    thread::scope(|scope| {
        let written = scope.spawn(|| first_write(replica, name, &is_killed));
        kill();
        is_killed.store(true, Ordering::Release);
        let acquired = runtime.block_on(async {
            while lock.acquire().await.is_err() {}
            now()
        });
        let written = written.join().expect("a write");
        let seconds = acquired.saturating_duration_since(written).as_secs_f64();
        verbose(&format!("{seconds:.3} s"));
        seconds
    })
}

/// When a server first accepts a write. The key is in the slot of the lock, and so of the node that takes over.
fn first_write(port: u16, name: &str, is_killed: &AtomicBool) -> Instant {
    while !is_killed.load(Ordering::Acquire) {
        pause(Duration::from_micros(100));
    }
    let key = format!("probe:{{{name}}}");
    let is_written = || {
        let mut connection = Connection::tcp(([127, 0, 0, 1], port).into()).ok()?;
        let reply = connection.command(&["SET", &key, "1"]).ok()?;
        matches!(reply, Reply::Simple(_)).then_some(())
    };
    while is_written().is_none() {
        pause(Duration::from_millis(1));
    }
    now()
}
