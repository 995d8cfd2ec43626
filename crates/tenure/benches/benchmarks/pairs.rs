//! Pairs of acquire and release on names of their own, by Tenure and by two peers, done alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rlock::async_lock::RLock;
use rslock::LockManager;
use tenure::{Lock, Tenure};
use tokio::runtime::Runtime;

use super::memory::{now, pause};
use super::redis::median;

/// How long callers run.
const ROUND: Duration = Duration::from_secs(1);

/// The lease that the peers ask for: the default of `rlock`.
const LEASE: Duration = Duration::from_secs(10);

/// A caller that acquires and releases a lock of its own.
pub(crate) trait Caller: Send + 'static {
    /// Once.
    fn pair(&mut self) -> impl Future<Output = ()> + Send;
}

impl Caller for Lock {
    async fn pair(&mut self) {
        let guard = self.acquire().await.expect("a free lock");
        guard.release().await.expect("a release");
    }
}

pub(crate) struct Rslock(LockManager, String);

impl Caller for Rslock {
    async fn pair(&mut self) {
        let guard = self.0.acquire(self.1.as_str(), LEASE).await.expect("a free lock");
        guard.release().await;
    }
}

pub(crate) struct Rlock(RLock, String);

impl Caller for Rlock {
    async fn pair(&mut self) {
        let mut guard = self.0.acquire_mutex(&self.1).await.expect("a free lock");
        guard.release().await.expect("a release");
    }
}

/// The clients of one server that are compared.
pub(crate) struct Clients {
    pub(crate) tenure: Tenure,
    rslock: LockManager,
    rlock: RLock,
}

impl Clients {
    /// The peers have their connections on this runtime.
    pub(crate) fn new(url: &str, runtime: &Runtime) -> Self {
        runtime.block_on(async {
            Self {
                // As the peers do.
                tenure: Tenure::builder()
                    .read_on_this_runtime()
                    .connect(url)
                    .await
                    .expect("a client"),
                rslock: LockManager::new(vec![url]),
                rlock: RLock::new(url).await.expect("a client"),
            }
        })
    }

    pub(crate) fn ours(&self, callers: usize) -> impl Iterator<Item = Lock> {
        names(callers).map(|name| self.tenure.lock(name))
    }

    pub(crate) fn rslock(&self, callers: usize) -> impl Iterator<Item = Rslock> {
        names(callers).map(|name| Rslock(self.rslock.clone(), format!("rslock:{name}")))
    }

    pub(crate) fn rlock(&self, callers: usize) -> impl Iterator<Item = Rlock> {
        names(callers).map(|name| Rlock(self.rlock.clone(), format!("rlock:{name}")))
    }
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("orders/{number}"))
}

/// A runtime of one thread, which parks when it is idle.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// The result of a run of callers.
pub(crate) struct Round {
    /// Microseconds, of each pair.
    times: Vec<f64>,
    seconds: f64,
}

impl Round {
    /// Runs all callers concurrently for a while.
    pub(crate) fn of<C: Caller>(runtime: &Runtime, callers: impl Iterator<Item = C>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let end = std::thread::spawn({
            let stop = stop.clone();
            move || {
                pause(ROUND);
                stop.store(true, Ordering::Relaxed);
            }
        });
        let started = now();
        let times = runtime.block_on(async {
            let tasks: Vec<_> = callers.map(|it| tokio::spawn(go_on(it, stop.clone()))).collect();
            let mut times = Vec::new();
            for task in tasks {
                times.extend(task.await.expect("a caller that does not panic"));
            }
            times
        });
        let seconds = started.elapsed().as_secs_f64();
        end.join().expect("an end");
        Self { times, seconds }
    }

    pub(crate) fn pairs_per_second(&self) -> f64 {
        self.times.len() as f64 / self.seconds
    }

    /// Microseconds of a pair.
    pub(crate) fn p50(self) -> f64 {
        median(self.times)
    }
}

async fn go_on(mut caller: impl Caller, stop: Arc<AtomicBool>) -> Vec<f64> {
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let started = now();
        caller.pair().await;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    times
}
