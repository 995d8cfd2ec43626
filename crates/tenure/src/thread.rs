//! A thread with a small runtime of its own.

use std::io;
use std::sync::{Arc, Mutex};

use tokio::runtime::Runtime;

use crate::sync::lock;

/// Runs a future on a new thread, until it ends.
pub(crate) fn run(
    name: &str,
    runtime: Runtime,
    work: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let slot = Arc::new(Mutex::new(Some(runtime)));
    let there = slot.clone();
    let started = std::thread::Builder::new().name(name.into()).spawn(move || {
        let runtime = lock(&there).take();
        if let Some(runtime) = runtime {
            runtime.block_on(work);
        }
    });
    if started.is_err()
        && let Some(runtime) = lock(&slot).take()
    {
        // Where we are called from, async code may be running, in which dropping it would panic.
        runtime.shutdown_background();
    }
    started.map(drop)
}
