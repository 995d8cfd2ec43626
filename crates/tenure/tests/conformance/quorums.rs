//! Stores that are a quorum of servers.

use std::time::Duration;

use tenure::Tenure;
use tenure::blocking::block_on;
use tenure::engine::{Engine, QuorumEngine};
use tenure_testkit::{Flavor, Server};

use super::fixture::Fixture;
use super::locks::until_waiting;
use super::servers::until_clients;

/// Five servers of the case's own.
pub(crate) struct FiveServers(Vec<Server>);

impl FiveServers {
    fn url(&self) -> String {
        let hosts: Vec<_> =
            self.0.iter().map(|it| format!("127.0.0.1:{}", it.port().unwrap())).collect();
        format!("redis+quorum://{}", hosts.join(","))
    }

    fn connect(&self) -> QuorumEngine {
        block_on(QuorumEngine::connect(&self.url())).unwrap()
    }
}

impl Fixture for FiveServers {
    fn start() -> Self {
        let start = || Server::builder().flavor(Flavor::Redis).on_port().start();
        let servers = Self((0..5).map(|_| start()).collect());
        let longest = Duration::from_secs(24 * 3600);
        block_on(QuorumEngine::mark_nodes(&servers.url(), Some(longest), false)).unwrap();
        servers
    }

    fn is_left_out() -> bool {
        Flavor::Redis.is_left_out()
    }

    fn engine(&self) -> Box<dyn Engine> {
        Box::new(self.connect())
    }

    fn tenure(&self) -> Tenure {
        block_on(Tenure::connect(&self.url())).unwrap()
    }

    fn shows_entries_to_others(&self) -> bool {
        false
    }

    async fn until_waiting_everywhere(&self, name: &str, count: usize) {
        for server in &self.0 {
            until_waiting(&Tenure::connect(&server.url()).await.unwrap(), name, count).await;
        }
    }

    async fn until_clients(&self, count: usize) {
        for server in &self.0 {
            until_clients(server, count).await;
        }
    }
}
