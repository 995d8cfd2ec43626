//! Stores that are clusters. A cluster takes two seconds to start, so cases that are over leave theirs, emptied, to others.

use std::marker::PhantomData;
use std::sync::Mutex;
use std::time::Duration;

use tenure::Tenure;
use tenure::blocking::block_on;
use tenure::engine::{Engine, RedisEngine};
use tenure_testkit::{Cluster, Flavor};

use super::fixture::Fixture;
use super::servers::{Which, until_clients};

/// Clusters that no case uses. They end with the process.
static IDLE: Mutex<Vec<(Flavor, Cluster)>> = Mutex::new(Vec::new());

/// A cluster that no other case uses at the same time: three primaries, without replicas.
pub(crate) struct OneCluster<W: Which>(Option<Cluster>, PhantomData<fn() -> W>);

impl<W: Which> OneCluster<W> {
    pub(crate) fn cluster(&self) -> &Cluster {
        self.0.as_ref().unwrap()
    }

    fn connect(&self) -> RedisEngine {
        block_on(RedisEngine::connect(&self.cluster().url_of_one())).unwrap()
    }
}

impl<W: Which> Fixture for OneCluster<W> {
    fn start() -> Self {
        let mut idle = IDLE.lock().unwrap();
        let found = idle.iter().position(|(flavor, _)| *flavor == W::FLAVOR);
        let found = found.map(|at| idle.swap_remove(at).1);
        drop(idle);
        // However busy the machine is, no node takes another one for dead: the cluster would refuse all requests.
        let cluster = Cluster::builder(W::FLAVOR).node_timeout(Duration::from_secs(60));
        let start = || cluster.replicas(0).start();
        Self(Some(found.unwrap_or_else(start)), PhantomData)
    }

    fn is_left_out() -> bool {
        W::FLAVOR.is_left_out()
    }

    fn engine(&self) -> Box<dyn Engine> {
        Box::new(self.connect())
    }

    fn tenure(&self) -> Tenure {
        Tenure::builder().engine(self.connect()).unwrap()
    }

    async fn until_clients(&self, count: usize) {
        // A client leaves one node after the other, and is subscribed at each of them.
        for node in &self.cluster().nodes {
            until_clients(node.server(), count).await;
        }
    }
}

impl<W: Which> Drop for OneCluster<W> {
    fn drop(&mut self) {
        // A case that failed may have left its cluster in any state.
        if let Some(cluster) = self.0.take().filter(|_| !std::thread::panicking()) {
            cluster.flush();
            IDLE.lock().unwrap().push((W::FLAVOR, cluster));
        }
    }
}
