//! The Redis engine: each result is a ratio within one run, against the same server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tenure::blocking::block_on;
use tenure::{Lock, Tenure};
use tenure_testkit::Server;
use tenure_testkit::resp::Connection;

use super::memory::{now, pause};

pub(crate) fn server() -> Server {
    Server::builder().on_port().start()
}

pub(crate) fn client(server: &Server) -> Tenure {
    block_on(Tenure::connect(&server.url())).expect("a client")
}

/// Prints single measurements in verbose mode.
pub(crate) fn verbose(sentence: &str) {
    if is_verbose() {
        eprintln!("{sentence}");
    }
}

pub(crate) fn is_verbose() -> bool {
    std::env::var_os("TENURE_BENCH_TALK").is_some()
}

/// Microseconds of one PING on a plain connection.
pub(crate) fn ping(connection: &mut Connection, count: u32) -> f64 {
    let started = now();
    for _ in 0..count {
        connection.command(&["PING"]).expect("a pong");
    }
    started.elapsed().as_secs_f64() * 1e6 / f64::from(count)
}

pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Pairs per second of 512 tasks on names of their own, over those of a plain connection that calls the same
/// two scripts, one call each, 512 at a time.
pub(crate) fn pair_throughput() -> Vec<f64> {
    let server = server();
    let mut plain = Plain::new(&server);
    let tenure = client(&server);
    let round = |plain: &mut Plain| {
        let before = plain.pairs_per_second();
        let ours = pairs_per_second(&tenure, 512);
        let after = plain.pairs_per_second();
        verbose(&format!("plain {before:.0}/s, ours {ours:.0}/s, plain {after:.0}/s"));
        ours / ((before + after) / 2.0)
    };
    round(&mut plain);
    (0..5).map(|_| round(&mut plain)).collect()
}

/// Pairs per second of a number of tasks, each with a name of its own.
pub(crate) fn pairs_per_second(tenure: &Tenure, tasks: usize) -> f64 {
    sections_per_second((0..tasks).map(|task| tenure.lock(format!("orders/{task}"))))
}

/// Sections per second of tasks, each of which acquires and releases its lock.
pub(crate) fn sections_per_second(locks: impl Iterator<Item = Lock>) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let pairs = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    for lock in locks {
        let (pairs, stop) = (pairs.clone(), stop.clone());
        runtime.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let guard = lock.acquire().await.expect("a free lock");
                guard.release().await.expect("a release");
                pairs.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let end = std::thread::spawn({
        let (stop, pairs) = (stop.clone(), pairs.clone());
        move || {
            pause(Duration::from_millis(200));
            let (started, before) = (now(), pairs.load(Ordering::Relaxed));
            pause(Duration::from_secs(1));
            let count = pairs.load(Ordering::Relaxed) - before;
            let rate = count as f64 / started.elapsed().as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            rate
        }
    });
    runtime.block_on(async {
        while !stop.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
    });
    end.join().expect("a rate")
}

/// A connection that sends the scripts as they are, many at a time.
struct Plain {
    connection: Connection,
    acquire: String,
    release: String,
}

/// The parts of the scripts.
const PARTS: [(&str, &str); 10] = [
    ("--@ plain_begin.lua", include_str!("../../src/engine/redis/lua/plain_begin.lua")),
    ("--@ plain_result.lua", include_str!("../../src/engine/redis/lua/plain_result.lua")),
    ("--@ plain_end.lua", include_str!("../../src/engine/redis/lua/plain_end.lua")),
    ("--@ fast_path.lua", include_str!("../../src/engine/redis/lua/fast_path.lua")),
    ("--@ lock.lua", include_str!("../../src/engine/redis/lua/lock.lua")),
    ("--@ proposals.lua", include_str!("../../src/engine/redis/lua/proposals.lua")),
    ("--@ state.lua", include_str!("../../src/engine/redis/lua/state.lua")),
    ("--@ holders.lua", include_str!("../../src/engine/redis/lua/holders.lua")),
    ("--@ queue.lua", include_str!("../../src/engine/redis/lua/queue.lua")),
    ("--@ common.lua", include_str!("../../src/engine/redis/lua/common.lua")),
];

impl Plain {
    fn new(server: &Server) -> Self {
        let mut connection = server.connect().expect("a connection");
        let mut load = |text: &str| match connection.command(&["SCRIPT", "LOAD", text]) {
            Ok(reply) => reply.text().expect("a hash"),
            Err(error) => panic!("{error}"),
        };
        let lua = |operation: &str| {
            PARTS.iter().fold(operation.to_owned(), |text, (line, part)| text.replace(line, part))
        };
        let acquire = load(&lua(include_str!("../../src/engine/redis/lua/acquire.lua")));
        let release = load(&lua(include_str!("../../src/engine/redis/lua/release.lua")));
        Self { connection, acquire, release }
    }

    fn pairs_per_second(&mut self) -> f64 {
        let started = now();
        let mut pairs = 0;
        while started.elapsed() < Duration::from_millis(700) {
            for number in 0..512 {
                self.send(true, number);
            }
            (0..512).for_each(|_| self.expect("\n1 "));
            for number in 0..512 {
                self.send(false, number);
            }
            (0..512).for_each(|_| self.expect("\n0"));
            pairs += 512;
        }
        f64::from(pairs) / started.elapsed().as_secs_f64()
    }

    fn send(&mut self, acquire: bool, number: u32) {
        let key = format!("tenure:{{plain/{number}}}");
        let owner = "0123456789abcdef0123456789abcdef";
        let hash = if acquire { &self.acquire } else { &self.release };
        let held = format!(" 00030000 {owner} c0ffee00c0ffee00");
        let mut words = vec!["EVALSHA", hash, "1", &key, "1 c0ffee00c0ffee00 30000"];
        match acquire {
            true => words.extend([&held, "60000", "+15000 3000 65"]),
            false => words.push(owner),
        }
        self.connection.send(&words).expect("sent");
    }

    fn expect(&mut self, what: &str) {
        let reply = self.connection.read().expect("a reply").text();
        assert!(reply.as_ref().is_some_and(|reply| reply.contains(what)), "{reply:?}");
    }
}
