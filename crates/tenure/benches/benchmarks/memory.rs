//! The memory engine: the cost of the driver itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure::Tenure;
use tenure::blocking::block_on;

const ROUNDS: usize = 9;

/// Microseconds for an uncontended acquire and release by one task.
pub(crate) fn pair() -> Vec<f64> {
    pair_on(&Tenure::memory().expect("a client"), 200_000)
}

pub(crate) fn pair_on(tenure: &Tenure, pairs: u32) -> Vec<f64> {
    let lock = tenure.lock("orders/42");
    let round = || {
        let started = now();
        block_on(async {
            for _ in 0..pairs {
                let guard = lock.acquire().await.expect("a free lock");
                guard.release().await.expect("a release");
            }
        });
        started.elapsed().as_secs_f64() * 1e6 / f64::from(pairs)
    };
    round();
    (0..ROUNDS).map(|_| round()).collect()
}

/// Sections per second of 64 tasks on one name.
pub(crate) fn contended() -> Vec<f64> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).build().expect("a runtime");
    let tenure = Tenure::memory().expect("a client");
    let sections = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..64 {
        let (lock, sections, stop) = (tenure.lock("orders/42"), sections.clone(), stop.clone());
        runtime.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let guard = lock.acquire().await.expect("a lock");
                sections.fetch_add(1, Ordering::Relaxed);
                drop(guard);
            }
        });
    }
    let rate = || {
        let (started, before) = (now(), sections.load(Ordering::Relaxed));
        pause(Duration::from_secs(1));
        (sections.load(Ordering::Relaxed) - before) as f64 / started.elapsed().as_secs_f64()
    };
    rate();
    let rates = (0..ROUNDS).map(|_| rate()).collect();
    stop.store(true, Ordering::Relaxed);
    rates
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a benchmark lets time pass")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
