//! Dedicated threads, with a small runtime or for a blocking call, and tasks that survive a panic.
//!
//! Foreign code runs on these threads, too: wakers of other executors, recorders of metrics and
//! subscribers of events. Its panic must end neither a thread that renews leases nor a task that reads
//! replies.

use std::io;
use std::sync::{Arc, Mutex};

use tokio::runtime::{Builder, Handle, Runtime};
#[cfg(feature = "redis")]
use tokio::sync::oneshot;

#[cfg(feature = "redis")]
use crate::error::Error;
use crate::sync::lock;

/// The small runtime of a thread that is to be started. In a simulation, which has one thread, it is that of all.
pub(crate) struct Home {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Home {
    /// A runtime for timers alone.
    pub(crate) fn with_time() -> io::Result<Self> {
        Self::new(|builder| builder.enable_time())
    }

    fn new(enable: impl FnOnce(&mut Builder) -> &mut Builder) -> io::Result<Self> {
        #[cfg(all(test, feature = "redis", unix))]
        if let Some(handle) = crate::simulation::runtime() {
            return Ok(Self { handle, runtime: None });
        }
        let runtime = enable(&mut Builder::new_current_thread()).build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Starts the thread, and runs a future on it until it ends.
    pub(crate) fn run(
        self,
        name: &str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        match self.runtime {
            Some(runtime) => run(name, runtime, work),
            None => {
                self.handle.spawn(work);
                Ok(())
            }
        }
    }
}

fn run(
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
        // The caller may be async code, in which dropping a runtime panics.
        runtime.shutdown_background();
    }
    started.map(drop)
}

/// Starts a thread for I/O and timers, which ends when the sender is dropped.
#[cfg(feature = "redis")]
pub(crate) fn start_io(name: &str) -> Result<(Handle, oneshot::Sender<()>), Error> {
    let failed = |source| Error::Thread { source: Arc::new(source) };
    let home = Home::new(|builder| builder.enable_all()).map_err(failed)?;
    let io = home.handle();
    let (running, ended) = oneshot::channel::<()>();
    home.run(name, async { drop(ended.await) }).map_err(failed)?;
    Ok((io, running))
}

/// Runs a task on the runtime it is awaited on, and restarts it if it panics: its destructors have cleaned
/// up.
#[cfg(feature = "redis")]
pub(crate) async fn lasting<F>(start: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let mut task = EndsWith(tokio::spawn(start()));
        match (&mut task.0).await {
            Err(ended) if ended.is_panic() => rest().await,
            _ => return,
        }
    }
}

/// A task that ends with the one that has started it: a connection of a server that was left would stay open.
#[cfg(feature = "redis")]
struct EndsWith(tokio::task::JoinHandle<()>);

#[cfg(feature = "redis")]
impl Drop for EndsWith {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A task that always panics must not starve the other tasks of the thread.
#[cfg(feature = "redis")]
#[expect(clippy::disallowed_methods, reason = "a task that panicked is restarted after a delay")]
async fn rest() {
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
}

/// Runs a call that may block on a new thread, for a caller on any executor. If the future is dropped, the
/// call continues, and its result is discarded.
#[cfg(all(feature = "local", target_os = "linux"))]
pub(crate) async fn compute<T: Send + 'static>(
    name: &str,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Arc<io::Error>> {
    let (sender, result) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(move || drop(sender.send(call()))).map_err(Arc::new)?;
    result.await.map_err(|_| Arc::new(io::Error::other("it panicked")))
}
