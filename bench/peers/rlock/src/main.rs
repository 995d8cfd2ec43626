//! Locks with rlock.

use protocol::{Caller, Options};
use rlock::AcquireOptions;
use rlock::async_lock::{RLock, RLockGuard};

struct Rlock(RLock, AcquireOptions);

impl Caller for Rlock {
    type Guard = RLockGuard;

    async fn acquire(&self, name: &str) -> RLockGuard {
        self.0.acquire_mutex_with_options(name, self.1.clone()).await.expect("a lock")
    }

    async fn release(&self, mut guard: RLockGuard) {
        guard.release().await.expect("a release");
    }
}

fn main() {
    let options = Options::parse();
    let runtime = protocol::runtime();
    let url = options.urls[0].as_str();
    let client = runtime.block_on(RLock::new(url)).expect("a client");
    // Everything else as by default: a lease of ten seconds, which is renewed.
    let acquire = AcquireOptions::builder().retry_interval(options.poll);
    let acquire = acquire.build().expect("valid options");
    protocol::run(&runtime, "0.2.0", &options, |_| Rlock(client.clone(), acquire.clone()));
}
