//! Busy loops beside the tests: one per core, at least two, so that every thread of a test has to wait for a
//! core now and then. A property that holds only on an idle machine does not hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Loops that run until this is dropped.
pub(crate) struct Busy {
    is_over: Arc<AtomicBool>,
    loops: Vec<JoinHandle<()>>,
}

impl Busy {
    pub(crate) fn start() -> Self {
        let cores = thread::available_parallelism().map_or(2, usize::from).max(2);
        let is_over = Arc::new(AtomicBool::new(false));
        let spin = |is_over: Arc<AtomicBool>| {
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        };
        let loops = (0..cores).map(|_| thread::spawn(spin(is_over.clone()))).collect();
        Self { is_over, loops }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for it in self.loops.drain(..) {
            // The loop cannot panic.
            let _ = it.join();
        }
    }
}
