//! Locks with rslock, on one server or, by the Redlock algorithm, on several.

use std::time::Duration;

use protocol::{Caller, Options};
use rslock::{LockGuard, LockManager};

const LEASE: Duration = Duration::from_secs(10);

struct Rslock(LockManager);

impl Caller for Rslock {
    type Guard = LockGuard;

    async fn acquire(&self, name: &str) -> LockGuard {
        self.0.acquire(name, LEASE).await.expect("a lock")
    }

    async fn release(&self, guard: LockGuard) {
        guard.release().await;
    }
}

fn main() {
    let options = Options::parse();
    let runtime = protocol::runtime();
    let mut manager = LockManager::new(options.urls.clone());
    // A retry comes after a random number of whole milliseconds below this one: half of it on average.
    let delay = (options.poll.as_secs_f64() * 2e3).round() as u64 + 1;
    manager.set_retry(u32::MAX, Duration::from_millis(delay));
    protocol::run(&runtime, "0.10.0", &options, |_| Rslock(manager.clone()));
}
