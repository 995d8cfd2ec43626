//! Threads of their own: with a small runtime, or for a call that blocks; and what keeps a panic from
//! ending what runs there.
//!
//! Code that is not ours runs on these threads, too: wakers of other executors, sinks of metrics and
//! of events. Its panic must end neither a thread that renews leases nor a task that reads replies.

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

/// Runs a task on the runtime it is awaited on, and starts it again if it panics: what it left is
/// cleaned up by its destructors.
#[cfg(feature = "redis")]
pub(crate) async fn lasting<F>(start: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    while let Err(ended) = tokio::spawn(start()).await
        && ended.is_panic()
    {
        rest().await;
    }
}

/// A panic that comes every time must not keep the thread from other work.
#[cfg(feature = "redis")]
#[expect(clippy::disallowed_methods, reason = "a task that panicked is not started again at once")]
async fn rest() {
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
}

/// Runs a call that may block on a new thread, for a caller on any executor. Dropped in between, the
/// call goes on, and nothing is made of what it returns.
#[cfg(feature = "local")]
pub(crate) async fn compute<T: Send + 'static>(
    name: &str,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Arc<io::Error>> {
    let (sender, result) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(move || drop(sender.send(call()))).map_err(Arc::new)?;
    result.await.map_err(|_| Arc::new(io::Error::other("it panicked")))
}
