//! Servers of a quorum, and a witness of exclusion and fences.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tenure::engine::{Engine, ListRequest, QuorumEngine, RedisEngine};
use tenure::{Fence, Guard, Tenure};
use tenure_testkit::proxy::Command;
use tenure_testkit::{Flavor, Proxy, Server};

use crate::waiting::acquire_when_reachable;
pub(crate) use crate::waiting::{LONG, now, pass, until, until_well};

/// The longest lease of the quorums here.
pub(crate) const LONGEST: Duration = Duration::from_secs(5);

/// Whether tests that take long, or depend on exact moments, run.
pub(crate) fn is_long() -> bool {
    std::env::var_os("TENURE_LONG").is_some()
}

pub(crate) fn server() -> Server {
    Server::builder().flavor(Flavor::Redis).on_port().start()
}

pub(crate) fn host(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port().unwrap())
}

pub(crate) fn proxied(proxy: &Proxy) -> String {
    proxy.url().strip_prefix("redis://").unwrap().to_owned()
}

/// The nodes of one quorum.
pub(crate) struct Nodes(pub(crate) Vec<Server>);

impl Nodes {
    /// New servers, marked.
    pub(crate) async fn start(count: usize) -> Self {
        let nodes = Self((0..count).map(|_| server()).collect());
        nodes.mark(false).await;
        nodes
    }

    pub(crate) async fn mark(&self, force: bool) -> Vec<String> {
        QuorumEngine::mark_nodes(&self.url(), Some(LONGEST), force).await.unwrap()
    }

    pub(crate) fn url(&self) -> String {
        url(self.0.iter().map(host))
    }

    pub(crate) async fn client(&self) -> Tenure {
        client(&self.url()).await
    }

    /// A client that reaches the nodes through proxies of its own.
    pub(crate) async fn distant_client(&self) -> (Tenure, Vec<Proxy>) {
        let proxies: Vec<_> = self.0.iter().map(Proxy::start).collect();
        (client(&url(proxies.iter().map(proxied))).await, proxies)
    }

    /// How many locks a node has, as a server of its own.
    pub(crate) async fn locks_at(&self, node: usize) -> usize {
        let engine = RedisEngine::connect(&self.0[node].url()).await.unwrap();
        let request = ListRequest { prefix: String::new(), limit: 100 };
        engine.list(request).await.unwrap().len()
    }

    /// Nothing is left behind at any node.
    pub(crate) async fn until_empty(&self) {
        for node in 0..self.0.len() {
            until("the node has no locks", async || self.locks_at(node).await == 0).await;
        }
    }
}

pub(crate) fn url(hosts: impl Iterator<Item = String>) -> String {
    format!("redis+quorum://{}", hosts.collect::<Vec<_>>().join(","))
}

pub(crate) async fn client(url: &str) -> Tenure {
    let builder = Tenure::builder().lease(Duration::from_secs(3));
    builder.patience(Duration::from_millis(500)).connect(url).await.unwrap()
}

/// Acquires as soon as the store can be reached.
pub(crate) async fn acquire(tenure: &Tenure, name: &str) -> Guard {
    acquire_when_reachable(&tenure.lock(name)).await
}

/// Sees every hold of a lock: one at a time (I1), with growing fences (I4).
#[derive(Default)]
pub(crate) struct Witness {
    is_held: AtomicBool,
    last: Mutex<Option<Fence>>,
    pub(crate) holds: AtomicUsize,
}

impl Witness {
    /// To be called by a holder, which calls [`Witness::leave`] before it releases.
    pub(crate) fn enter(&self, guard: &Guard) {
        assert!(!self.is_held.swap(true, Ordering::SeqCst), "I1: two holders");
        let mut last = self.last.lock().unwrap();
        assert!(
            last.is_none_or(|last| guard.fence() > last),
            "I4: {:?} after {last:?}",
            guard.fence()
        );
        *last = Some(guard.fence());
        self.holds.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        self.is_held.store(false, Ordering::SeqCst);
    }

    /// Acquires and releases until it is stopped. Errors of the store are part of it.
    pub(crate) async fn load(&self, tenure: &Tenure, name: &str, is_over: &AtomicBool) {
        while !is_over.load(Ordering::SeqCst) {
            let Ok(guard) = tenure.lock(name).acquire_within(Duration::from_secs(1)).await else {
                continue;
            };
            // A hold that was lost meanwhile has no say.
            if !guard.is_lost() {
                self.enter(&guard);
                tokio::task::yield_now().await;
                self.leave();
            }
            let _ = guard.release().await;
        }
    }

    /// Waits for more holds.
    pub(crate) async fn until_more(&self, more: usize) {
        let before = self.holds.load(Ordering::SeqCst);
        until("the lock is used", async || self.holds.load(Ordering::SeqCst) >= before + more)
            .await;
    }
}

pub(crate) fn is_about_x(command: &Command) -> bool {
    matches!(command.name(), "EVALSHA" | "EVAL") && command.has("tenure:{x}")
}
