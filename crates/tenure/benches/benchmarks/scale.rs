//! The cost model of docs/scale.md: its constants, measured on one server, and how well it predicts a cluster.
//!
//! A pair is two operations. An operation costs the server some time of its own, and a share of its call, which operations
//! of one client that are in flight together share. A renewal is an operation in a call of up to 256.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tenure::{Guard, Tenure};
use tenure_testkit::resp::Connection;
use tenure_testkit::{Cluster, Flavor};
use tokio::runtime::Runtime;

use super::memory::{now, pause};
use super::pairs::runtime;
use super::redis::{server, verbose};

/// How long each constant is measured.
const WINDOW: Duration = Duration::from_secs(5);

/// The lease of held locks: each is renewed after a third of it.
const LEASE: Duration = Duration::from_secs(9);

const HELD: usize = 20_000;
const IDLE_CLIENTS: usize = 200;

/// The clients that make pairs, and how long each rests after one.
const CLIENTS: usize = 48;
const REST: Duration = Duration::from_millis(2);

/// What a server has used since it started.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    /// In seconds.
    cpu: f64,
    memory: f64,
    network: f64,
    calls: f64,
}

impl Usage {
    fn of(connection: &mut Connection) -> Self {
        let info = connection.command(&["INFO", "everything"]).expect("a reply");
        let info = info.text().expect("text");
        let read = |field: &str| -> f64 {
            let line = info.lines().find_map(|line| line.strip_prefix(field));
            let digits = line.map(|line| line.split(',').next().unwrap_or(line).trim());
            digits.and_then(|digits| digits.parse().ok()).unwrap_or(0.0)
        };
        Self {
            cpu: read("used_cpu_sys:") + read("used_cpu_user:"),
            memory: read("used_memory:"),
            network: read("total_net_input_bytes:") + read("total_net_output_bytes:"),
            calls: read("cmdstat_evalsha:calls="),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            cpu: self.cpu - before.cpu,
            memory: self.memory - before.memory,
            network: self.network - before.network,
            calls: self.calls - before.calls,
        }
    }
}

/// The constants of the model: µs of the server's processor, and bytes.
struct Model {
    call: f64,
    operation: f64,
    renewal: f64,
    idle_client: f64,
    lock_memory: f64,
    client_memory: f64,
    pair_network: f64,
    renewal_network: f64,
}

/// Pairs of some callers for a while, each with a pause behind it. Returns how many there were, and what the servers used.
fn load(
    runtime: &Runtime,
    clients: &[Tenure],
    callers: usize,
    rest: Duration,
    nodes: &mut [Connection],
) -> (f64, Vec<Usage>) {
    let (pairs, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    for (client, tenure) in clients.iter().enumerate() {
        for caller in 0..callers {
            let lock = tenure.lock(format!("pairs/{client}/{caller}"));
            let (pairs, stop) = (pairs.clone(), stop.clone());
            runtime.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let guard = lock.acquire().await.expect("a free lock");
                    guard.release().await.expect("a release");
                    pairs.fetch_add(1, Ordering::Relaxed);
                    if !rest.is_zero() {
                        after(rest).await;
                    }
                }
            });
        }
    }
    let measured = runtime.block_on(async {
        after(WINDOW / 5).await;
        let before: Vec<_> = nodes.iter_mut().map(Usage::of).collect();
        let first = pairs.load(Ordering::Relaxed);
        after(WINDOW).await;
        let count = pairs.load(Ordering::Relaxed) - first;
        let used = nodes.iter_mut().zip(before).map(|(node, before)| Usage::of(node).since(before));
        (count as f64, used.collect())
    });
    stop.store(true, Ordering::Relaxed);
    runtime.block_on(after(WINDOW / 5));
    measured
}

#[expect(clippy::disallowed_methods, reason = "a load with pauses, for a time")]
async fn after(time: Duration) {
    tokio::time::sleep(time).await;
}

fn connect(runtime: &Runtime, url: &str) -> Tenure {
    let connecting = Tenure::builder().read_on_this_runtime().lease(LEASE).connect(url);
    runtime.block_on(async { connecting.await.expect("a client") })
}

fn connect_all(runtime: &Runtime, url: &str) -> Vec<Tenure> {
    (0..CLIENTS).map(|_| connect(runtime, url)).collect()
}

fn hold(runtime: &Runtime, tenure: &Tenure, count: usize) -> Vec<Guard> {
    let acquire = |number: usize| {
        let lock = tenure.lock(format!("orders/{number}"));
        runtime.spawn(async move { lock.acquire().await.expect("a free lock") })
    };
    let tasks: Vec<_> = (0..count).map(acquire).collect();
    runtime.block_on(async {
        let mut guards = Vec::with_capacity(count);
        for task in tasks {
            guards.push(task.await.expect("a guard"));
        }
        guards
    })
}

impl Model {
    /// Measures the constants on one server.
    fn measure(runtime: &Runtime) -> Self {
        let server = server();
        let mut node = [server.connect().expect("a connection")];
        let one = [connect(runtime, &server.url())];
        // Clients with one caller each: no two operations share a call. A server that has more than one client to serve reads
        // several requests whenever it wakes, so one caller alone would cost more.
        let clients = connect_all(runtime, &server.url());
        let (alone, used_alone) = load(runtime, &clients, 1, REST, &mut node);
        drop(clients);
        let (many, used_by_many) = load(runtime, &one, 512, Duration::ZERO, &mut node);
        let (alone_of, many_of) = (used_alone[0], used_by_many[0]);
        // Two measurements, two unknowns: CPU = calls × call + operations × operation.
        let per_operation = |used: Usage, pairs: f64| used.cpu * 1e6 / (2.0 * pairs);
        let calls = |used: Usage, pairs: f64| used.calls / (2.0 * pairs);
        let call = (per_operation(alone_of, alone) - per_operation(many_of, many))
            / (calls(alone_of, alone) - calls(many_of, many));
        let operation = per_operation(many_of, many) - call * calls(many_of, many);

        let before = Usage::of(&mut node[0]);
        let guards = hold(runtime, &one[0], HELD);
        let lock_memory = Usage::of(&mut node[0]).since(before).memory / HELD as f64;
        let renewals = HELD as f64 * WINDOW.as_secs_f64() / (LEASE.as_secs_f64() / 3.0);
        pause(LEASE / 3);
        let renewing = used_in_a_window(&mut node[0]);
        assert!(guards.iter().all(|guard| !guard.is_lost()), "none is lost");
        drop(guards);
        pause(WINDOW);

        let alone_and_idle = used_in_a_window(&mut node[0]);
        let before = Usage::of(&mut node[0]);
        let idle: Vec<_> = (0..IDLE_CLIENTS).map(|_| connect(runtime, &server.url())).collect();
        let idling = used_in_a_window(&mut node[0]).since(alone_and_idle);
        // By then the server has shrunk the buffers in which it received the scripts.
        let client_memory = Usage::of(&mut node[0]).since(before).memory / IDLE_CLIENTS as f64;
        drop(idle);
        Self {
            call,
            operation,
            renewal: renewing.cpu * 1e6 / renewals,
            idle_client: idling.cpu * 1e6 / IDLE_CLIENTS as f64 / WINDOW.as_secs_f64(),
            lock_memory,
            client_memory,
            pair_network: alone_of.network / alone,
            renewal_network: renewing.network / renewals,
        }
    }

    fn show(&self) {
        let Self { call, operation, renewal, idle_client, .. } = self;
        let Self { lock_memory, client_memory, pair_network, renewal_network, .. } = self;
        verbose(&format!(
            "a call {call:.1} µs, an operation {operation:.1} µs, a renewal {renewal:.2} µs, an idle client {idle_client:.1} µs/s"
        ));
        verbose(&format!(
            "a lock {lock_memory:.0} bytes, a client {client_memory:.0} bytes; on the network a pair {pair_network:.0} bytes, a renewal {renewal_network:.0} bytes"
        ));
    }

    /// Cores for this many pairs and renewals a second, with one operation in each call.
    fn cores(&self, pairs: f64, renewals: f64, clients: f64) -> f64 {
        let pair = 2.0 * (self.call + self.operation);
        (pairs * pair + renewals * self.renewal + clients * self.idle_client) / 1e6
    }
}

fn used_in_a_window(node: &mut Connection) -> Usage {
    let (started, before) = (now(), Usage::of(node));
    pause(WINDOW);
    let used = Usage::of(node).since(before);
    verbose(&format!("{:?} in {:?}", used, started.elapsed()));
    used
}

/// The processor time that the model predicts for three primaries, over what they use; or the other way round, whichever is
/// more than one.
pub(crate) fn model() -> Vec<f64> {
    let runtime = runtime();
    let model = Model::measure(&runtime);
    model.show();
    let cluster = Cluster::builder(Flavor::Redis).replicas(0).start();
    let url = cluster.url();
    let clients = connect_all(&runtime, &url);
    let mut nodes: Vec<_> =
        cluster.nodes.iter().map(|node| node.connect().expect("a connection")).collect();
    let memory = |nodes: &mut [Connection]| -> f64 {
        nodes.iter_mut().map(|node| Usage::of(node).memory).sum()
    };
    let before = memory(&mut nodes);
    let guards = hold(&runtime, &clients[0], HELD);
    let per_lock = (memory(&mut nodes) - before) / HELD as f64;
    verbose(&format!("a lock in the cluster {per_lock:.0} bytes"));
    pause(LEASE / 3);
    let mut round = || {
        let (pairs, used) = load(&runtime, &clients, 1, REST, &mut nodes);
        let renewals = HELD as f64 / (LEASE.as_secs_f64() / 3.0);
        let pairs = pairs / WINDOW.as_secs_f64();
        let predicted = model.cores(pairs, renewals, clients.len() as f64 * 3.0);
        let measured = used.iter().map(|it| it.cpu).sum::<f64>() / WINDOW.as_secs_f64();
        verbose(&format!(
            "{pairs:.0} pairs and {renewals:.0} renewals a second: {predicted:.3} cores predicted, {measured:.3} measured"
        ));
        (predicted / measured).max(measured / predicted)
    };
    let rounds = (0..3).map(|_| round()).collect();
    assert!(guards.iter().all(|guard| !guard.is_lost()), "none is lost");
    rounds
}
