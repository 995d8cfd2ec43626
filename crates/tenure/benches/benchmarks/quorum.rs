//! A quorum of five servers, compared with one.

use std::time::Duration;

use tenure::Tenure;
use tenure::blocking::block_on;
use tenure::engine::QuorumEngine;
use tenure_testkit::{Distance, Flavor, Proxy, Server};
use tokio::runtime::Runtime;

use super::callers::pairs_in_a_row;
use super::memory::pause;
use super::pairs::runtime;
use super::redis::{median, verbose};

const NODES: usize = 5;
const ROUNDS: usize = 9;
const TURNS: usize = 10;
const ONE_WAY: Duration = Duration::from_micros(500);

/// Longer than a connection without an answer lasts, and than its first attempts to connect again take.
const TIMEOUT: Duration = Duration::from_secs(5);

fn start() -> Server {
    Server::builder().flavor(Flavor::Redis).on_port().start()
}

fn client(runtime: &Runtime, url: &str) -> Tenure {
    let builder = Tenure::builder().read_on_this_runtime();
    runtime.block_on(builder.connect(url)).expect("a client")
}

fn quorum_url(urls: impl Iterator<Item = String>) -> String {
    let host = |url: String| url.strip_prefix("redis://").expect("on a port").to_owned();
    format!("redis+quorum://{}", urls.map(host).collect::<Vec<_>>().join(","))
}

fn mark(servers: &[Server]) {
    let url = quorum_url(servers.iter().map(Server::url));
    block_on(QuorumEngine::mark_nodes(&url, Some(Duration::from_secs(60)), false))
        .expect("new servers");
}

/// The median of a pair, in microseconds.
fn pair(runtime: &Runtime, tenure: &Tenure) -> Vec<f64> {
    runtime.block_on(pairs_in_a_row(std::iter::once(tenure.lock("orders/42"))))
}

/// The median of a pair of one client over that of another, in turns.
fn ratio(runtime: &Runtime, ours: &Tenure, other: &Tenure) -> f64 {
    let (mut of_ours, mut of_other) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        of_ours.extend(pair(runtime, ours));
        of_other.extend(pair(runtime, other));
    }
    let (ours, other) = (median(of_ours), median(of_other));
    verbose(&format!("{ours:.1} µs over {other:.1} µs"));
    ours / other
}

/// A pair over five nodes, over one on a single server.
pub(crate) fn latency() -> Vec<f64> {
    let (nodes, single): (Vec<_>, _) = ((0..NODES).map(|_| start()).collect(), start());
    mark(&nodes);
    let runtime = runtime();
    let quorum = client(&runtime, &quorum_url(nodes.iter().map(Server::url)));
    let one = client(&runtime, &single.url());
    ratio(&runtime, &quorum, &one);
    (0..ROUNDS).map(|_| ratio(&runtime, &quorum, &one)).collect()
}

/// The same with a round trip of a millisecond.
pub(crate) fn latency_1ms() -> Vec<f64> {
    let (nodes, single): (Vec<_>, _) = ((0..NODES).map(|_| start()).collect(), start());
    mark(&nodes);
    let distances = Distance::start_all(&nodes, ONE_WAY);
    let distance = Distance::start(&single, ONE_WAY);
    let runtime = runtime();
    let quorum = client(&runtime, &quorum_url(distances.iter().map(Distance::url)));
    let one = client(&runtime, &distance.url());
    ratio(&runtime, &quorum, &one);
    (0..5).map(|_| ratio(&runtime, &quorum, &one)).collect()
}

/// A pair with one of five nodes in a black hole, over one with all of them, after the first timeout.
pub(crate) fn slow_node() -> Vec<f64> {
    let nodes: Vec<_> = (0..NODES).map(|_| start()).collect();
    mark(&nodes);
    let proxy = Proxy::start(&nodes[0]);
    let runtime = runtime();
    let direct = nodes.iter().skip(1).map(Server::url);
    let slow = client(&runtime, &quorum_url(std::iter::once(proxy.url()).chain(direct)));
    let healthy = client(&runtime, &quorum_url(nodes.iter().map(Server::url)));
    pair(&runtime, &slow);
    proxy.black_hole();
    pair(&runtime, &slow);
    pause(TIMEOUT);
    ratio(&runtime, &slow, &healthy);
    (0..ROUNDS).map(|_| ratio(&runtime, &slow, &healthy)).collect()
}
