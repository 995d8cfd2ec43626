//! Locks in Redisson's format, compared with Redisson's own client, in the same run on the same server.

use tenure::Tenure;
use tenure::blocking::block_on;
use tenure_testkit::{Agent, Redisson, Server};

use super::memory::now;
use super::redis::{median, pairs_per_second, verbose};

const ROUNDS: usize = 5;

/// Pairs that are measured in a row.
const PAIRS: usize = 4_000;

/// For how long Redisson's callers run, in ms: as long to warm up, and then to be measured.
const CALLERS_RUN: &str = "3000";

/// A server, and both clients of it.
fn both() -> (Server, Agent, Tenure) {
    let redisson = Redisson::build().unwrap_or_else(|why| panic!("{why}"));
    let server = Server::builder().on_port().start();
    let java = redisson.start_service(server.port().expect("a port"));
    let builder = Tenure::builder().redisson();
    let tenure = block_on(builder.connect(&server.url())).expect("a client");
    (server, java, tenure)
}

/// Uncontended pairs by one thread, over those of one Java thread, which has run twice as many before.
pub(crate) fn pair() -> Vec<f64> {
    let (_server, java, tenure) = both();
    let lock = tenure.lock("pairs/tenure").blocking();
    let pairs = || {
        let times = (0..PAIRS).map(|_| {
            let begin = now();
            lock.acquire().expect("a free lock").release().expect("a release");
            begin.elapsed().as_secs_f64() * 1e6
        });
        median(times)
    };
    let theirs = || {
        let nanos: f64 = java.run("a", "pairs", "x", &PAIRS.to_string()).parse().expect("a number");
        nanos / 1e3
    };
    let round = || {
        let (ours, theirs) = (pairs(), theirs());
        verbose(&format!("ours {ours:.1} µs, Redisson's client {theirs:.1} µs"));
        ours / theirs
    };
    round();
    (0..ROUNDS).map(|_| round()).collect()
}

/// Pairs per second of 512 tasks, over those of 512 Java threads.
pub(crate) fn callers_512() -> Vec<f64> {
    let (_server, java, tenure) = both();
    let round = || {
        let ours = pairs_per_second(&tenure, 512);
        let rest = format!("512 {CALLERS_RUN}");
        let theirs: f64 = java.run("a", "throughput", "x", &rest).parse().expect("a number");
        verbose(&format!("ours {ours:.0}, Redisson's client {theirs:.0} pairs/s"));
        ours / theirs
    };
    round();
    (0..ROUNDS).map(|_| round()).collect()
}
