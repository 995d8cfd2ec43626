//! The server's cost of the Redis engine: CPU by its own statistics, and memory.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tenure::blocking::block_on;
use tenure::engine::{
    AcquireRequest, Acquired, Engine, Listener, Queueing, RedisEngine, ReleaseRequest, Wakeup,
};
use tenure::{About, Entry, Guard, Lease, LockName, Owner, Shape, Tenure};
use tenure_testkit::Server;
use tenure_testkit::resp::Connection;

use super::memory::{now, pause};
use super::redis::{client, median, pairs_per_second, server, verbose};

/// Redisson's plain lock, as documented: if it is free or mine, one more entry and a new expiry.
const REDISSON_LOCK: &str = "
    if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
      redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
      redis.call('PEXPIRE', KEYS[1], ARGV[1])
      return nil
    end
    return redis.call('PTTL', KEYS[1])";

/// Its release: answered already, or mine and one entry less; at zero the key is deleted, all waiters are
/// notified, and the answer is kept under a key of this call, which the client deletes afterwards.
const REDISSON_UNLOCK: &str = "
    local answered = redis.call('GET', KEYS[3])
    if answered then
      return tonumber(answered)
    end
    if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then
      return nil
    end
    local left = redis.call('HINCRBY', KEYS[1], ARGV[3], -1)
    if left > 0 then
      redis.call('PEXPIRE', KEYS[1], ARGV[2])
      redis.call('SET', KEYS[3], 0, 'PX', ARGV[5])
      return 0
    end
    redis.call('DEL', KEYS[1])
    redis.call(ARGV[4], KEYS[2], ARGV[1])
    redis.call('SET', KEYS[3], 1, 'PX', ARGV[5])
    return 1";

const REDISSON_OWNER: &str = "0a1b2c3d-4e5f-6a7b-8c9d-0e1f2a3b4c5d:42";

/// Server CPU per uncontended pair, over Redisson's two scripts and its DEL. Both are sent over the
/// same plain connection, one command after the other: an idle server is slower at the next command,
/// and the two would not be idle for the same time.
pub(crate) fn server_cost() -> Vec<f64> {
    let server = server();
    let mut plain = server.connect().expect("a connection");
    let ours = commands_of_pairs(&server);
    let [lock, unlock] = [REDISSON_LOCK, REDISSON_UNLOCK].map(|text| load(&mut plain, text));
    let turn = |plain: &mut Connection| {
        let ours = cpu_of(plain, PAIRS, |plain| {
            for words in &ours {
                let words: Vec<_> = words.iter().map(String::as_str).collect();
                plain.command(&words).expect("a reply");
            }
        });
        let theirs = cpu_of(plain, PAIRS, |plain| {
            (0..PAIRS).for_each(|number| redisson_pair(plain, number, &lock, &unlock));
        });
        (ours, theirs)
    };
    // Interleaved every few milliseconds, so that other load of the machine affects both alike.
    let mut round = || {
        let turns: Vec<_> = (0..100).map(|_| turn(&mut plain)).collect();
        let [ours, theirs] =
            [median(turns.iter().map(|it| it.0)), median(turns.iter().map(|it| it.1))];
        verbose(&format!("ours {ours:.2} µs, Redisson's {theirs:.2} µs"));
        ours / theirs
    };
    (0..5).map(|_| round()).collect()
}

/// The number of names.
const PAIRS: u32 = 100;

/// The commands that a client sends to acquire and release a lock on each of some names, as the
/// server sees them.
fn commands_of_pairs(server: &Server) -> Vec<Vec<String>> {
    let mut monitor = server.connect().expect("a connection");
    let tenure = client(server);
    monitor.command(&["MONITOR"]).expect("a reply");
    block_on(async {
        for number in 0..PAIRS {
            let lock = tenure.lock(format!("orders/{number}"));
            lock.acquire().await.expect("free").release().await.expect("released");
        }
    });
    let mut commands = Vec::new();
    while commands.len() < 2 * PAIRS as usize {
        let line = monitor.read().expect("a line").text().expect("text");
        // `time [database address] "WORD" "word" …`, and commands of a script have `lua` as the address.
        let words: Vec<_> = line.split('"').skip(1).step_by(2).map(str::to_owned).collect();
        if words[0] == "EVALSHA" {
            commands.push(words);
        }
    }
    commands
}

fn redisson_pair(plain: &mut Connection, number: u32, lock: &str, unlock: &str) {
    let key = format!("orders/{}", number % PAIRS);
    let channel = format!("redisson_lock__channel:{{{key}}}");
    let latch = format!("redisson_unlock_latch:{{{key}}}:{number:032x}");
    let mut ask = |words: &[&str]| plain.command(words).expect("a reply");
    ask(&["EVALSHA", lock, "1", &key, "30000", REDISSON_OWNER]);
    let words = ["0", "30000", REDISSON_OWNER, "PUBLISH", "13500"];
    ask(&[&["EVALSHA", unlock, "3", &key, &channel, &latch], &words[..]].concat());
    ask(&["DEL", &latch]);
}

fn load(plain: &mut Connection, text: &str) -> String {
    plain.command(&["SCRIPT", "LOAD", text]).expect("a reply").text().expect("a hash")
}

/// Microseconds of the server's CPU per operation, for scripts and DEL.
pub(crate) fn cpu_of(
    plain: &mut Connection,
    count: u32,
    work: impl FnOnce(&mut Connection),
) -> f64 {
    plain.command(&["CONFIG", "RESETSTAT"]).expect("a reply");
    work(plain);
    script_micros(plain) / f64::from(count)
}

fn script_micros(plain: &mut Connection) -> f64 {
    let stats = plain.command(&["INFO", "commandstats"]).expect("a reply").text().expect("text");
    let lines = stats
        .lines()
        .filter(|line| line.starts_with("cmdstat_evalsha:") || line.starts_with("cmdstat_del:"));
    let micros =
        lines.filter_map(|line| line.split("usec=").nth(1)?.split(',').next()?.parse::<f64>().ok());
    micros.sum()
}

/// Server CPU per hand-over with 10,000 waiters, over the same with 10.
pub(crate) fn queue_scale() -> Vec<f64> {
    (0..3)
        .map(|_| {
            let (few, many) = (handover_cpu(10), handover_cpu(10_000));
            verbose(&format!("with 10: {few:.2} µs, with 10,000: {many:.2} µs"));
            many / few
        })
        .collect()
}

fn handover_cpu(waiters: usize) -> f64 {
    let server = server();
    let mut plain = server.connect().expect("a connection");
    let engine = block_on(RedisEngine::connect(&server.url())).expect("a client");
    let ear = Arc::new(Ear::default());
    engine.listen(Arc::downgrade(&ear) as Weak<dyn Listener>);
    let mut holder = join(&engine);
    let mut waiting =
        (0..waiters).map(|_| join(&engine)).collect::<std::collections::VecDeque<_>>();
    let handovers = 2_000;
    plain.command(&["CONFIG", "RESETSTAT"]).expect("a reply");
    let mut spent = 0.0;
    for _ in 0..handovers {
        // Joining is not counted, only releasing.
        let before = script_micros(&mut plain);
        let name = LockName::new("x").expect("a name");
        block_on(engine.release(ReleaseRequest::new(name, holder))).expect("a release");
        spent += script_micros(&mut plain) - before;
        holder = waiting.pop_front().expect("a waiter");
        waiting.push_back(join(&engine));
    }
    spent / f64::from(handovers)
}

#[derive(Default)]
struct Ear(Mutex<usize>);

impl Listener for Ear {
    fn wake(&self, _: Wakeup) {
        *self.0.lock().expect("not poisoned") += 1;
    }
}

fn join(engine: &RedisEngine) -> Entry {
    let entry = Entry { owner: Owner::new(), number: 0 };
    let hour = Duration::from_secs(3600);
    let request = AcquireRequest {
        name: LockName::new("x").expect("a name"),
        entry,
        shape: Shape::mutex(),
        lease: Lease::new(hour).expect("a lease"),
        about: Arc::new(About::this_process()),
        queue: Some(Queueing { heartbeat: hour, claim: hour, fences: 1 }),
        proposal: None,
    };
    match block_on(engine.acquire(request)).expect("an answer") {
        Acquired::Granted(_) | Acquired::Queued(_) => entry,
        other => panic!("{other:?}"),
    }
}

/// Server memory per held lock, over Redisson's hash of a lock.
pub(crate) fn memory_per_lock() -> Vec<f64> {
    let locks = 20_000;
    let ours = {
        let server = server();
        let tenure = client(&server);
        let before = used_memory(&server);
        let guards = hold(&tenure, locks);
        (used_memory(&server) - before) / guards.len() as f64
    };
    let theirs = {
        let server = server();
        let mut plain = server.connect().expect("a connection");
        let before = used_memory(&server);
        let lock = load(&mut plain, REDISSON_LOCK);
        for number in 0..locks {
            let key = format!("orders/{number}");
            plain
                .command(&["EVALSHA", &lock, "1", &key, "30000000", REDISSON_OWNER])
                .expect("a reply");
        }
        (used_memory(&server) - before) / locks as f64
    };
    verbose(&format!("ours {ours:.0} bytes, Redisson's {theirs:.0} bytes"));
    vec![ours / theirs]
}

pub(crate) fn used_memory(server: &Server) -> f64 {
    let mut plain = server.connect().expect("a connection");
    let info = plain.command(&["INFO", "memory"]).expect("a reply").text().expect("text");
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    line.and_then(|line| line.trim().parse().ok()).expect("a number")
}

fn hold(tenure: &Tenure, locks: usize) -> Vec<Guard> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let mut guards = Vec::with_capacity(locks);
        for first in (0..locks).step_by(500) {
            let some = (first..locks.min(first + 500)).map(|number| {
                let lock = tenure.lock(format!("orders/{number}"));
                tokio::spawn(async move { lock.acquire().await.expect("a free lock") })
            });
            for task in some.collect::<Vec<_>>() {
                guards.push(task.await.expect("a guard"));
            }
        }
        guards
    })
}

/// The part of one core that the server spends on renewing 100,000 locks; none may be lost in a minute under
/// full load.
pub(crate) fn renew_100k() -> Vec<f64> {
    let server = server();
    let (tenure, mut plain) = (client(&server), server.connect().expect("a connection"));
    let guards = hold(&tenure, 100_000);
    pause(Duration::from_secs(10));
    let windows = (0..3).map(|_| {
        let (started, before) = (now(), script_micros(&mut plain));
        pause(Duration::from_secs(10));
        (script_micros(&mut plain) - before) / 1e6 / started.elapsed().as_secs_f64()
    });
    let windows: Vec<_> = windows.collect();
    let other = client(&server);
    let started = now();
    while started.elapsed() < Duration::from_secs(60) {
        pairs_per_second(&other, 512);
    }
    let lost = guards.iter().filter(|guard| guard.is_lost()).count();
    assert_eq!(lost, 0, "{lost} of 100,000 locks were lost");
    windows
}
