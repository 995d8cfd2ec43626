//! Waiting with open eyes, for a moment, before going to sleep.
//!
//! To wake a process that sleeps takes longer than most sections do. So whoever is next in line
//! looks for a moment whether its turn has come. It does so only while that pays: each look in
//! vain makes it look more rarely.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::clock;

/// About what it takes to fall asleep and to be woken.
const MOMENT: Duration = Duration::from_micros(50);

/// After so many looks in vain in a row, one in 64 waits is begun with open eyes.
const MOST_MISSES: u32 = 6;

/// How looking has fared for one client.
#[derive(Default)]
pub(crate) struct Spin {
    /// Asked for when it is first needed, because that takes a while.
    cores: OnceLock<usize>,
    misses: AtomicU32,
    /// How many waits are still to be begun asleep.
    skips: AtomicU32,
}

impl Spin {
    #[cfg(test)]
    pub(crate) fn with_cores(cores: usize) -> Self {
        Self { cores: cores.into(), ..Self::default() }
    }

    /// Whether the next wait is to be begun with open eyes. The counts are rough where threads
    /// meet, which is good enough.
    pub(crate) fn is_worth_it(&self) -> bool {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        if *self.cores.get_or_init(cores) == 1 {
            // Nobody else would get on while we look.
            return false;
        }
        let skips = self.skips.load(Ordering::Relaxed);
        self.skips.store(skips.saturating_sub(1), Ordering::Relaxed);
        skips == 0
    }

    /// Looks until there is something to see, or the moment is over: then none.
    pub(crate) fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let end = clock::now() + MOMENT;
        let seen = loop {
            if let Some(seen) = look() {
                break Some(seen);
            }
            if clock::now() >= end {
                break None;
            }
            std::hint::spin_loop();
        };
        let misses = match seen {
            Some(_) => 0,
            None => (self.misses.load(Ordering::Relaxed) + 1).min(MOST_MISSES),
        };
        self.misses.store(misses, Ordering::Relaxed);
        self.skips.store((1 << misses) - 1, Ordering::Relaxed);
        seen
    }
}
