//! Many tasks at one lock on a busy machine: engines that answer at once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tenure::Tenure;
use tenure::engine::MemoryEngine;
use tokio::runtime;

const TASKS: usize = 64;

/// It takes seconds, and must not take forever.
const LONG: Duration = Duration::from_secs(120);

#[test]
fn many_tasks_at_one_lock_in_memory() {
    stress(&[in_memory()], 3000);
}

/// At every release, tasks of other clients wait in the store, too.
#[test]
fn many_tasks_of_two_clients_at_one_lock_in_memory() {
    let engine = MemoryEngine::new();
    let another = Tenure::builder().engine(engine.another()).unwrap();
    stress(&[Tenure::builder().engine(engine).unwrap(), another], 500);
}

#[cfg(feature = "local")]
#[test]
fn many_tasks_at_one_lock_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    stress(&[in_folder(&folder)], 1000);
}

#[cfg(feature = "local")]
#[test]
fn many_tasks_of_two_clients_at_one_lock_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    stress(&[in_folder(&folder), in_folder(&folder)], 50);
}

fn in_memory() -> Tenure {
    Tenure::memory().unwrap()
}

#[cfg(feature = "local")]
fn in_folder(folder: &tempfile::TempDir) -> Tenure {
    let url = format!("local://{}/locks", folder.path().display());
    tenure::blocking::block_on(Tenure::connect(&url)).unwrap()
}

/// Counts the tasks in the critical section, which is one at most, and checks that the fences increase.
#[derive(Default)]
struct Section {
    inside: AtomicUsize,
    last_fence: AtomicU64,
    had: AtomicUsize,
}

/// I1, I4, I7: 64 tasks of some clients each enter a critical section many times, beside threads that keep all
/// cores busy. There are never two in it, the fences increase, and each task finishes, in bounded time and on
/// a small stack.
fn stress(clients: &[Tenure], sections: usize) {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let (is_over, section) = (AtomicBool::new(false), Arc::new(Section::default()));
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let served = serve_all(clients, sections, &section);
        is_over.store(true, Ordering::Relaxed);
        served.expect("not all were served in time");
    });
    assert_eq!(section.had.load(Ordering::Relaxed), TASKS * sections);
}

fn serve_all(clients: &[Tenure], sections: usize, section: &Arc<Section>) -> Result<(), String> {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(256 << 10)
        .enable_time()
        .build()
        .unwrap();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (lock, section) = (clients[task % clients.len()].lock("x"), section.clone());
            runtime.spawn(async move {
                for _ in 0..sections {
                    let guard = lock.acquire().await.unwrap();
                    section.enter(guard.fence().value());
                    if task % 16 == 1 {
                        tokio::task::yield_now().await;
                    }
                    section.leave();
                    // Most guards are dropped, and some are released explicitly.
                    if task % 16 == 0 {
                        guard.release().await.unwrap();
                    }
                }
            })
        })
        .collect();
    let all = async {
        for task in tasks {
            task.await.map_err(|error| error.to_string())?;
        }
        Ok(())
    };
    let ended = runtime.block_on(async { tokio::time::timeout(LONG, all).await });
    runtime.shutdown_background();
    ended.map_err(|_| format!("{} sections were had", section.had.load(Ordering::Relaxed)))?
}

impl Section {
    fn enter(&self, fence: u64) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "I1: two are in it");
        let last = self.last_fence.swap(fence, Ordering::SeqCst);
        assert!(fence > last, "I4: {fence} after {last}");
        self.had.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}
