//! Simulation: the whole client, from a lock to the bytes of the protocol, with simulated time and a simulated network.
//!
//! - [`ambient`]: clocks, random numbers and threads, which a simulation replaces.
//! - [`server`]: a server and its network; [`database`] has its keys, [`scripting`] runs the real scripts, [`reply`] has the protocol.
//! - [`workload`]: what clients do; [`nemesis`]: the faults; [`judge`]: the promises.
//!
//! Minutes pass in milliseconds, so thousands of seeds are tried, and each moment is known exactly: that two clients believe in
//! a lock at the same time is seen, however short it is. A failure names its seed; `TENURE_SEED` runs only that one.

mod ambient;
mod database;
mod judge;
mod nemesis;
mod reply;
mod scripting;
mod server;
mod workload;

pub(crate) use ambient::{now, random_bits, runtime, wall};

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use self::judge::{Counts, Judge};
use self::nemesis::Nemesis;
use self::server::Server;
use self::workload::{Task, pass};
use crate::engine::{Engine, QuorumEngine, RedisEngine};
use crate::sync::lock;
use crate::{Error, Owner, Tenure};

const CLIENTS: usize = 3;
const TASKS: usize = 2;

/// What is simulated.
#[derive(Clone, Copy)]
struct Scene {
    nodes: usize,
    /// How fast the clocks of the servers are.
    speed: f64,
    /// How many owners the tasks share; 0 if every acquire is an owner of its own.
    owners: usize,
}

/// How long faults are injected.
const FAULTS: Duration = Duration::from_secs(4);

/// By then every task has ended: faults that have begun, leases and claims that nobody renews, and dead waiters delay some.
const PATIENCE: Duration = Duration::from_secs(120);

/// By then the leases and heartbeats of clients that have ended are over.
const DEAD: Duration = Duration::from_secs(25);

/// By then fences are forgotten, with everything else.
const FORGOTTEN: Duration = Duration::from_secs(300);

/// Independent servers, and what happened on them.
struct World {
    servers: Vec<Arc<Server>>,
    judge: Arc<Mutex<Judge>>,
    random: fastrand::Rng,
    clients: usize,
    tasks: JoinSet<()>,
    /// The tasks of each client, to crash it.
    running: Vec<(usize, Vec<tokio::task::AbortHandle>)>,
    over: Instant,
    owners: Vec<Owner>,
}

impl World {
    fn new(seed: u64, Scene { nodes, speed, owners }: Scene) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let delay = Duration::from_millis(random.u64(..4));
        let judge = Judge::new(nodes > 1);
        let servers = (0..nodes).map(|_| Server::start(delay, speed, random.fork())).collect();
        Self {
            servers,
            judge: Arc::new(Mutex::new(judge)),
            random,
            clients: 0,
            tasks: JoinSet::new(),
            running: Vec::new(),
            over: Instant::now() + FAULTS,
            owners: (0..owners).map(|_| Owner::new()).collect(),
        }
    }

    /// Starts a client, as another process would be.
    async fn start_client(&mut self) {
        let number = self.clients;
        self.clients += 1;
        let tenure = self.connect(number).await;
        let mut aborts = Vec::new();
        for _ in 0..TASKS {
            let (judge, random) = (self.judge.clone(), self.random.fork());
            let (tenure, owners) = (tenure.clone(), self.owners.clone());
            let task = Task { number, tenure, judge, random, owners };
            aborts.push(self.tasks.spawn(task.run(self.over)));
        }
        self.running.push((number, aborts));
    }

    async fn connect(&mut self, number: usize) -> Tenure {
        let urls: Vec<_> = self.servers.iter().map(|server| server.url_for(number)).collect();
        let reads_itself = self.random.bool();
        loop {
            let connected = match &urls[..] {
                [url] if reads_itself => {
                    Tenure::builder().read_on_this_runtime().connect(url).await
                }
                [url] => Tenure::connect(url).await,
                urls => connect_to_all(urls).await,
            };
            match connected {
                Ok(tenure) => return tenure,
                // The server may be down at this moment.
                Err(_) => pass(Duration::from_millis(50)).await,
            }
        }
    }

    /// A client ends without a word.
    fn crash(&mut self) {
        let at = self.random.usize(..self.running.len());
        let (client, tasks) = self.running.swap_remove(at);
        self.servers.iter().for_each(|server| server.silence(client, Duration::from_secs(3600)));
        tasks.iter().for_each(tokio::task::AbortHandle::abort);
        lock(&self.judge).crashed(client);
    }

    /// Waits until all tasks have ended, and for what they leave behind.
    async fn end(mut self) -> Judge {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(PATIENCE, all).await.is_err() {
            lock(&self.judge).violated("a waiter was never served (I7)".to_owned());
            self.tasks.abort_all();
        }
        ambient::coarsen(Duration::from_millis(50));
        pass(DEAD).await;
        let tenure = self.connect(usize::MAX).await;
        for name in ["mutex", "readers", "permits"] {
            match tenure.lock(name).inspect().await {
                Ok(info) if info.is_free() && info.waiting == 0 => {}
                left => {
                    lock(&self.judge).violated(format!("{name} was left behind (I8): {left:?}"))
                }
            }
        }
        drop(tenure);
        ambient::coarsen(Duration::from_secs(1));
        pass(FORGOTTEN).await;
        for server in &self.servers {
            let left = server.locks();
            if !left.is_empty() {
                lock(&self.judge).violated(format!("the keys {left:?} were left behind"));
            }
        }
        std::mem::take(&mut *lock(&self.judge))
    }
}

/// Connects to independent servers, which do not lose their data: nothing keeps one that does from voting.
async fn connect_to_all(urls: &[String]) -> Result<Tenure, Error> {
    let mut engines: Vec<Box<dyn Engine>> = Vec::new();
    for url in urls {
        engines.push(Box::new(RedisEngine::connect(url).await?));
    }
    let engine = QuorumEngine::over(engines, Duration::from_secs(60))?;
    Tenure::builder().engine(engine)
}

/// Simulates one seed.
fn simulate(seed: u64, scene: Scene) -> Judge {
    ambient::simulate(seed, async {
        let mut world = World::new(seed, scene);
        for _ in 0..CLIENTS {
            world.start_client().await;
        }
        Nemesis::new(&mut world).run().await;
        world.end().await
    })
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Simulates many seeds, or the one that a variable names.
fn simulate_all(seeds: u64, nodes: usize, owners: usize) {
    let seeds = if std::env::var_os("TENURE_LONG").is_some() { seeds * 100 } else { seeds };
    let seeds = match number_of("TENURE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number_of("TENURE_SEEDS").unwrap_or(seeds),
    };
    let mut all = Counts::default();
    for seed in seeds {
        let judge = simulate(seed, Scene { nodes, speed: 1.0, owners });
        assert!(judge.violations.is_empty(), "TENURE_SEED={seed}: {:#?}", judge.violations);
        all.add(judge.counts);
    }
    println!("{all:?}");
    assert!(all.granted > 0 && all.faults > 0, "{all:?}");
}

/// I1, I4, I6, I7, I8, I9.
#[test]
fn one_server_keeps_the_promises() {
    simulate_all(200, 1, 0);
}

/// The same with owners that tasks of all clients share: they enter again, and end their entries in any order.
#[test]
fn one_server_keeps_the_promises_to_shared_owners() {
    simulate_all(60, 1, 3);
}

/// The same on a majority of three.
#[test]
fn a_quorum_keeps_the_promises() {
    simulate_all(60, 3, 0);
}

#[test]
fn a_quorum_keeps_the_promises_to_shared_owners() {
    simulate_all(60, 3, 3);
}

/// The judge finds something: a server whose clock is twice as fast ends leases that its clients believe in (A1).
#[test]
fn two_holders_are_found() {
    let is_found = |seed| {
        let judge = simulate(seed, Scene { nodes: 1, speed: 2.0, owners: 0 });
        judge.violations.iter().any(|violation| violation.ends_with("(I1)"))
    };
    assert!((0..20).any(is_found));
}
