//! Adaptive spin-then-park: the first waiter spins for up to 50 µs before it parks.
//!
//! Waking a parked process takes longer than most critical sections. The waiter spins only while that pays: each
//! futile spin makes the next one rarer.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::clock;

/// About the time that parking and waking take.
const SPIN_TIME: Duration = Duration::from_micros(50);

/// After this many futile spins in a row, one in 64 waits begins with a spin.
const MAX_MISSES: u32 = 6;

/// The record of one client's spins.
#[derive(Default)]
pub(crate) struct Spin {
    /// Read when it is first needed, because that is slow.
    cores: OnceLock<usize>,
    misses: AtomicU32,
    /// How many waits still begin without a spin.
    skips: AtomicU32,
}

impl Spin {
    #[cfg(test)]
    pub(crate) fn with_cores(cores: usize) -> Self {
        Self { cores: cores.into(), ..Self::default() }
    }

    /// Whether the next wait begins with a spin. Threads may race on the counters, which is accurate enough.
    pub(crate) fn is_worth_it(&self) -> bool {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        if *self.cores.get_or_init(cores) == 1 {
            // With one core, the holder cannot run while this thread spins.
            return false;
        }
        let skips = self.skips.load(Ordering::Relaxed);
        self.skips.store(skips.saturating_sub(1), Ordering::Relaxed);
        skips == 0
    }

    /// Polls until there is a result, or the spin time is over.
    pub(crate) fn until<T>(&self, mut poll: impl FnMut() -> Option<T>) -> Option<T> {
        let end = clock::now() + SPIN_TIME;
        let found = loop {
            if let Some(found) = poll() {
                break Some(found);
            }
            if clock::now() >= end {
                break None;
            }
            std::hint::spin_loop();
        };
        let misses = match found {
            Some(_) => 0,
            None => (self.misses.load(Ordering::Relaxed) + 1).min(MAX_MISSES),
        };
        self.misses.store(misses, Ordering::Relaxed);
        self.skips.store((1 << misses) - 1, Ordering::Relaxed);
        found
    }
}
