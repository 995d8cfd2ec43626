//! Callers on names of their own: a single one, and many compared with the better of two peers.

use tenure::blocking;
use tenure_testkit::resp::Connection;
use tenure_testkit::{Server, Tls};

use super::memory::now;
use super::pairs::{Caller, Clients, Round, runtime};
use super::redis::{client, is_verbose, median, ping, server, verbose};

const ROUNDS: usize = 9;

/// How many pairs, or PINGs, are measured in a row before the other is.
const IN_A_ROW: usize = 100;

/// How often each is measured in a round. A machine's speed varies from second to second, depending on the
/// cores on which the threads sleep: both should see all of it.
const TURNS: usize = 20;

/// Uncontended acquire and release by one thread, over two PINGs on a plain connection. A PING between two
/// pairs would keep threads awake that a pair has to wake, so each has many in a row.
pub(crate) fn pair_latency() -> Vec<f64> {
    let server = server();
    let (tenure, mut plain) = (client(&server), server.connect().expect("a connection"));
    let lock = tenure.lock("orders/42").blocking();
    let mut round = || {
        let (mut pairs, mut pings) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            pairs.extend(in_a_row(|| blocking_pair(&lock)));
            pings.extend(pings_in_a_row(&mut plain));
        }
        let (pair, two_pings) = (median(pairs), 2.0 * median(pings));
        verbose(&format!("pair {pair:.1} µs, two pings {two_pings:.1} µs"));
        pair / two_pings
    };
    round();
    (0..ROUNDS).map(|_| round()).collect()
}

/// The same by one task on a runtime of one thread. In verbose mode it also prints the times of the peers.
pub(crate) fn pair_latency_tokio() -> Vec<f64> {
    let server = server();
    let runtime = runtime();
    let clients = Clients::new(&server.url(), &runtime);
    let mut plain = server.connect().expect("a connection");
    let mut round = || {
        let (mut pairs, mut pings) = (Vec::new(), Vec::new());
        let (mut rslock, mut rlock) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            pairs.extend(runtime.block_on(pairs_in_a_row(clients.ours(1))));
            pings.extend(pings_in_a_row(&mut plain));
            if is_verbose() {
                rslock.extend(runtime.block_on(pairs_in_a_row(clients.rslock(1))));
                rlock.extend(runtime.block_on(pairs_in_a_row(clients.rlock(1))));
            }
        }
        let two_pings = 2.0 * median(pings);
        let ours = median(pairs) / two_pings;
        if is_verbose() {
            let (rslock, rlock) = (median(rslock) / two_pings, median(rlock) / two_pings);
            let others = format!("rslock {rslock:.2}, rlock {rlock:.2}");
            verbose(&format!("two pings {two_pings:.1} µs; ours {ours:.2}, {others}"));
        }
        ours
    };
    round();
    (0..ROUNDS).map(|_| round()).collect()
}

fn blocking_pair(lock: &blocking::Lock) {
    lock.acquire().expect("a free lock").release().expect("a release");
}

fn pings_in_a_row(plain: &mut Connection) -> Vec<f64> {
    (0..IN_A_ROW).map(|_| ping(plain, 1)).collect()
}

/// Microseconds of an operation, measured repeatedly.
fn in_a_row(mut work: impl FnMut()) -> Vec<f64> {
    let mut time = || {
        let started = now();
        work();
        started.elapsed().as_secs_f64() * 1e6
    };
    (0..IN_A_ROW).map(|_| time()).collect()
}

pub(crate) async fn pairs_in_a_row(mut callers: impl Iterator<Item = impl Caller>) -> Vec<f64> {
    let mut caller = callers.next().expect("one caller");
    let mut times = Vec::with_capacity(IN_A_ROW);
    for _ in 0..IN_A_ROW {
        let started = now();
        caller.pair().await;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    times
}

/// Voluntary context switches of this process, per pair of one calling thread.
pub(crate) fn pair_switches() -> Vec<f64> {
    let server = server();
    let tenure = client(&server);
    let lock = tenure.lock("orders/42").blocking();
    let round = || {
        let pairs = TURNS * IN_A_ROW;
        let before = voluntary_switches();
        (0..pairs).for_each(|_| blocking_pair(&lock));
        (voluntary_switches() - before) as f64 / pairs as f64
    };
    round();
    (0..ROUNDS).map(|_| round()).collect()
}

/// A pair by one thread over TLS, over one without. In turns, each with a server of its own.
pub(crate) fn tls_pair() -> Vec<f64> {
    let servers = [Server::builder().tls(Tls::default()).start(), server()];
    let locks = servers.each_ref().map(|server| client(server).lock("orders/42").blocking());
    let round = || {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..TURNS {
            for (times, lock) in times.iter_mut().zip(&locks) {
                times.extend(in_a_row(|| blocking_pair(lock)));
            }
        }
        let [tls, plain] = times.map(median);
        verbose(&format!("over TLS {tls:.1} µs, without {plain:.1} µs"));
        tls / plain
    };
    round();
    (0..ROUNDS).map(|_| round()).collect()
}

/// Of all threads of this process, so far.
fn voluntary_switches() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads");
    let statuses = tasks.filter_map(|task| {
        // A thread may have ended meanwhile.
        std::fs::read_to_string(task.ok()?.path().join("status")).ok()
    });
    let switches = statuses.filter_map(|status| {
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        count.trim().parse::<u64>().ok()
    });
    switches.sum()
}

/// Pairs per second of 64 tasks, over those of the better of two peers.
pub(crate) fn callers_64() -> Vec<f64> {
    beside_peers(64)
}

/// Pairs per second of 512 tasks, over those of the better of two peers.
pub(crate) fn callers_512() -> Vec<f64> {
    beside_peers(512)
}

fn beside_peers(callers: usize) -> Vec<f64> {
    let server = server();
    let runtime = runtime();
    let clients = Clients::new(&server.url(), &runtime);
    let round = || {
        let rslock = Round::of(&runtime, clients.rslock(callers)).pairs_per_second();
        let ours = Round::of(&runtime, clients.ours(callers)).pairs_per_second();
        let rlock = Round::of(&runtime, clients.rlock(callers)).pairs_per_second();
        verbose(&format!("ours {ours:.0}/s, rslock {rslock:.0}/s, rlock {rlock:.0}/s"));
        ours / rslock.max(rlock)
    };
    round();
    (0..5).map(|_| round()).collect()
}
