//! Callers on names of their own: one alone, and many together beside the best of two peers.

use tenure::blocking;
use tenure_testkit::resp::Connection;

use super::memory::now;
use super::pairs::{Caller, Clients, Round, runtime};
use super::redis::{client, median, ping, server, talk};

const ROUNDS: usize = 9;

/// How many pairs, or PINGs, are measured one after the other.
const IN_A_ROW: usize = 2_000;

/// Uncontended acquire and release by one thread, over two PINGs on a plain connection. Each is
/// measured alone: a PING in between would keep the threads awake that a pair has to wake.
pub(crate) fn pair_latency() -> Vec<f64> {
    let server = server();
    let (tenure, mut plain) = (client(&server), server.connect().expect("a connection"));
    let lock = tenure.lock("orders/42").blocking();
    let mut round = || {
        let pair = in_a_row(|| blocking_pair(&lock));
        let pings = two_pings(&mut plain);
        talk(&format!("pair {pair:.1} µs, two pings {pings:.1} µs"));
        pair / pings
    };
    round();
    (0..ROUNDS).map(|_| round()).collect()
}

/// The same by one task on a runtime of one thread. Whoever listens is also told what the peers need.
pub(crate) fn pair_latency_tokio() -> Vec<f64> {
    let server = server();
    let runtime = runtime();
    let clients = Clients::new(&server.url(), &runtime);
    let mut plain = server.connect().expect("a connection");
    let mut round = || {
        let pair = runtime.block_on(async_in_a_row(clients.ours(1)));
        let pings = two_pings(&mut plain);
        if std::env::var_os("TENURE_BENCH_TALK").is_some() {
            let rslock = runtime.block_on(async_in_a_row(clients.rslock(1)));
            let rlock = runtime.block_on(async_in_a_row(clients.rlock(1)));
            talk(&format!(
                "pair {pair:.1} µs, two pings {pings:.1} µs: {:.2}; rslock {:.2}, rlock {:.2}",
                pair / pings,
                rslock / pings,
                rlock / pings
            ));
        }
        pair / pings
    };
    round();
    (0..ROUNDS).map(|_| round()).collect()
}

fn blocking_pair(lock: &blocking::Lock) {
    lock.acquire().expect("a free lock").release().expect("a release");
}

fn two_pings(plain: &mut Connection) -> f64 {
    2.0 * median((0..2 * IN_A_ROW).map(|_| ping(plain, 1)))
}

/// The median of something done again and again, in microseconds.
fn in_a_row(mut work: impl FnMut()) -> f64 {
    median((0..IN_A_ROW).map(|_| {
        let started = now();
        work();
        started.elapsed().as_secs_f64() * 1e6
    }))
}

async fn async_in_a_row(mut callers: impl Iterator<Item = impl Caller>) -> f64 {
    let mut caller = callers.next().expect("one caller");
    let mut times = Vec::with_capacity(IN_A_ROW);
    for _ in 0..IN_A_ROW {
        let started = now();
        caller.pair().await;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    median(times)
}

/// How often a thread of this process goes to sleep, per pair of one thread that calls.
pub(crate) fn pair_switches() -> Vec<f64> {
    let server = server();
    let tenure = client(&server);
    let lock = tenure.lock("orders/42").blocking();
    let round = || {
        let before = voluntary_switches();
        (0..IN_A_ROW).for_each(|_| blocking_pair(&lock));
        (voluntary_switches() - before) as f64 / IN_A_ROW as f64
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
        talk(&format!("ours {ours:.0}/s, rslock {rslock:.0}/s, rlock {rlock:.0}/s"));
        ours / rslock.max(rlock)
    };
    round();
    (0..5).map(|_| round()).collect()
}
