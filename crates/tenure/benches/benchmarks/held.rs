//! The cost of very many held locks.

use std::time::Duration;

use tenure::blocking::block_on;
use tenure::{Guard, Tenure};

use super::memory::{now, pause};

const LOCKS: usize = 100_000;

/// Part of a core, in per cent, while 100,000 locks are held: three windows of ten seconds, in
/// each of which every lock is renewed once.
pub(crate) fn cpu() -> Vec<f64> {
    let tenure = Tenure::memory().expect("a client");
    let guards = hold(&tenure);
    let window = || {
        let (started, before) = (now(), cpu_time());
        pause(Duration::from_secs(10));
        let used = cpu_time() - before;
        used.as_secs_f64() / started.elapsed().as_secs_f64() * 100.0
    };
    let windows = (0..3).map(|_| window()).collect();
    assert!(guards.iter().all(|guard| !guard.is_lost()), "a lock was lost");
    windows
}

/// Bytes of resident memory per held lock: guard, driver and the store itself.
pub(crate) fn bytes() -> Vec<f64> {
    let tenure = Tenure::memory().expect("a client");
    drop(block_on(tenure.lock("warm").acquire()));
    let before = resident();
    let guards = hold(&tenure);
    let per_lock = (resident() - before) as f64 / guards.len() as f64;
    vec![per_lock]
}

fn hold(tenure: &Tenure) -> Vec<Guard> {
    let mut guards = Vec::with_capacity(LOCKS);
    block_on(async {
        for number in 0..LOCKS {
            let lock = tenure.lock(format!("orders/{number}"));
            guards.push(lock.acquire().await.expect("a free lock"));
        }
    });
    guards
}

fn cpu_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux reports the memory");
    let pages: usize = statm.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a number");
    pages * rustix::param::page_size()
}
