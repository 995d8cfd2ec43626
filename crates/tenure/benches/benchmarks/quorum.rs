//! A quorum of five servers, compared with one.

use std::time::Duration;

use tenure::Tenure;
use tenure::blocking::block_on;
use tenure::engine::QuorumEngine;
use tenure_testkit::resp::Connection;
use tenure_testkit::{Distance, Flavor, Proxy, Server};
use tokio::runtime::Runtime;

use super::callers::pairs_in_a_row;
use super::memory::{now, pause};
use super::pairs::runtime;
use super::redis::{is_verbose, median, ping, verbose};

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

/// What any client pays for five servers on this machine: two PINGs to all of them, each answered by a majority, over two to
/// one server. A client without any code of its own cannot have a smaller ratio.
fn floor(mut all: Vec<Connection>, mut one: Connection) {
    let majority = all.len() / 2 + 1;
    let mut pair_of_all = || {
        let started = now();
        for _ in 0..2 {
            all.iter_mut().for_each(|node| node.send(&["PING"]).expect("a sent PING"));
            all[..majority].iter_mut().for_each(|node| drop(node.read().expect("a pong")));
        }
        let time = started.elapsed().as_secs_f64() * 1e6;
        for node in &mut all[majority..] {
            (0..2).for_each(|_| drop(node.read().expect("a pong")));
        }
        time
    };
    let (mut of_all, mut of_one) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        of_all.extend((0..200).map(|_| pair_of_all()));
        of_one.extend((0..200).map(|_| 2.0 * ping(&mut one, 1)));
    }
    let (all, one) = (median(of_all), median(of_one));
    verbose(&format!("plain PINGs: {all:.1} µs over {one:.1} µs: {:.2}", all / one));
}

/// A pair over five nodes, over one on a single server.
pub(crate) fn latency() -> Vec<f64> {
    let (nodes, single): (Vec<_>, _) = ((0..NODES).map(|_| start()).collect(), start());
    mark(&nodes);
    let runtime = runtime();
    let quorum = client(&runtime, &quorum_url(nodes.iter().map(Server::url)));
    let one = client(&runtime, &single.url());
    if is_verbose() {
        let connect = |it: &Server| it.connect().expect("a connection");
        floor(nodes.iter().map(connect).collect(), connect(&single));
    }
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
    if is_verbose() {
        let connect = |it: &Distance| it.connect().expect("a connection");
        floor(distances.iter().map(connect).collect(), connect(&distance));
    }
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
