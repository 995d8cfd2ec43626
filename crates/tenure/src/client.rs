//! The client: connects to a store, makes locks and acquires them.

mod builder;
mod detached;
mod fallback;
mod inspection;
mod kinds;

pub use builder::Builder;
pub use fallback::Fallback;

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock;
use crate::core::lease::Lease;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::driver::{Driver, PATIENCE, Replication, Spec};
use crate::engine::{Engine, Features, Health, MemoryEngine};
use crate::error::{Error, StoreError};
use crate::events::Events;
use crate::guard::Guard;
use crate::info::About;
use crate::owner::Owner;
use crate::sync::lock;
use crate::telemetry;
use crate::telemetry::spans::{self, Scope};
use crate::wait::Wait;

/// A client of a store. It is cheap to clone; all clones share one connection and one thread.
///
/// # Examples
///
/// ```
/// # tenure::blocking::block_on(async {
/// let tenure = tenure::Tenure::connect("memory:").await?;
/// let guard = tenure.lock("orders/42").acquire().await?;
/// println!("held with fence {}", guard.fence());
/// # Ok::<(), tenure::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Tenure {
    client: Arc<Client>,
}

struct Client {
    driver: Arc<Driver>,
    fallback: Fallback,
    // Started when it is first needed.
    local: Mutex<Option<Arc<Driver>>>,
    about: Arc<About>,
    lease: Lease,
    replication: Option<Replication>,
    /// An acquire that waits for longer than this is logged.
    warn_waiting_after: Option<Duration>,
}

impl Tenure {
    /// Connects to the store at `url`.
    ///
    /// - `redis://[user:password@]host[:port][/database]`, `valkey://…`, `unix:///path/to/socket`:
    ///   a Redis or Valkey server. A Unix socket needs a Unix system.
    /// - `rediss://…`, `valkeys://…`: the same over TLS. The server's certificate must be valid for
    ///   the host and signed by an authority that the system trusts, or by one in the file
    ///   `?ca=FILE`. `?cert=FILE&key=FILE` is this client's own certificate, for a server that
    ///   requires one. The files are PEM, and are read again for every new connection.
    /// - `redis+sentinel://[user:password@]s1[:26379],s2,…/master[/database]`: the master that Sentinels
    ///   name, followed through failovers. The Sentinels' own login is `?sentinel_user=…` and
    ///   `&sentinel_password=…`; `rediss+sentinel://…` is TLS to all of them.
    /// - `redis+cluster://[user:password@]h1,h2,…`: a cluster, followed through failovers and moving slots. One of its nodes is
    ///   enough. `rediss+cluster://…` is TLS to all of them.
    /// - one of these with `?protocol=redisson`: locks that Java services share which use Redisson, as
    ///   [`Builder::redisson`] says; `&fenced=true` is [`Builder::redisson_fenced`].
    /// - `redis+quorum://[user:password@]h1,h2,h3[,…][/database]`: 3, 5 or 7 independent servers, of which a majority
    ///   decides. `tenure quorum init` marks them once. `rediss+quorum://…` is TLS to all of them.
    /// - `local:///folder`: a store that the processes of one user on this machine share through
    ///   a folder, without a server; `local:` is the folder `tenure` in `$XDG_STATE_HOME`, or else
    ///   in `~/.local/state`. The locks of a process are free as soon as it ends, however it ends.
    /// - `memory:`: a new store inside this process, for tests and for a single process.
    ///
    /// # Errors
    /// Returns an error if the URL is invalid or the store cannot be reached.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Creates a client of a new store inside this process; the same as `memory:`.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub fn memory() -> Result<Self, Error> {
        Self::builder().engine(MemoryEngine::new())
    }

    /// Returns a builder, for other defaults or another engine.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Returns the state of the connections to the store, for a health check. It sends no request and does
    /// not wait.
    pub fn health(&self) -> Health {
        let mut health = self.client.driver.health();
        health.degraded = lock(&self.client.local).as_ref().map_or(0, |driver| driver.held_count());
        health
    }

    /// Shares this client's locks with the child processes that are started from now on.
    ///
    /// This is for an engine that ends a process's locks when the process ends, such as the local one. After
    /// this call, the locks that this client holds when its process ends stay held, also beyond their
    /// leases, until every process that was started after the call has ended, directly or not, or has closed
    /// the file that it inherits for this. While this process lives, leases are unaffected. Returns false
    /// for any other engine: there a lock ends with its lease.
    ///
    /// # Errors
    /// Returns an error of the operating system; the locks then end with this process.
    pub fn share_with_children(&self) -> Result<bool, Error> {
        self.client.driver.check()?;
        self.client.driver.engine.share_with_children().map_err(|error| Error::Connect { error })
    }

    /// Waits until all background tasks are done, such as the release of dropped guards, but for at most
    /// `within`. Returns whether all are done. To be called before the process ends.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub async fn flush(&self, within: Duration) -> bool {
        !self.client.driver.is_inherited() && self.client.driver.quiet_within(within).await
    }

    /// For a process that ends while the store keeps a lock for it: a detached one, or one with a least
    /// time. A client that is dropped unregisters, and the store then no longer knows the host, process and
    /// program behind its locks. This client stays registered and connected until its process ends, so that
    /// `inspect` still names the holder of such a lock. Guards are not affected: drop or release them first.
    pub fn leave_registered(self) {
        std::mem::forget(self);
    }

    /// Whether another owner of this client holds the fallback's own mutex of this name.
    pub(crate) fn is_beside_the_fallback(&self, spec: &Spec, owner: Owner) -> bool {
        self.client.is_beside_the_fallback(spec, owner)
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.client.driver
    }

    /// Identifies the store, with the same text for all its clients.
    pub(crate) fn place(&self) -> String {
        self.client.driver.engine.place()
    }

    pub(crate) async fn try_acquire(&self, spec: &Arc<Spec>) -> Result<Option<Guard>, Error> {
        let started = clock::now();
        let span = spans::acquire(&spec.name, &self.client.driver.engine);
        let result = span.run(pin!(self.client.try_acquire(spec))).await;
        self.client.conclude(spec, started, &span, result)
    }

    pub(crate) async fn acquire(&self, spec: &Arc<Spec>, wait: &Wait) -> Result<Guard, Error> {
        let started = clock::now();
        let span = spans::acquire(&spec.name, &self.client.driver.engine);
        let acquiring = pin!(self.client.acquire(spec, wait));
        let warning = pin!(self.client.warn_of_long_wait(spec, started));
        let result = span.run(pin!(beside(acquiring, warning))).await.map(Some);
        let guard = self.client.conclude(spec, started, &span, result)?;
        Ok(guard.expect("an acquire ends with a guard or an error"))
    }

    /// Returns what happens to the locks of this client from now on: acquires, hand-overs, late renewals, losses and
    /// releases. A reader that falls behind by more than 1,024 events misses the oldest ones.
    pub fn events(&self) -> Events {
        self.client.driver.settings().events.subscribe()
    }
}

impl Client {
    async fn try_acquire(&self, spec: &Arc<Spec>) -> Result<Option<Guard>, Error> {
        let result = self.driver.try_acquire(spec).await;
        if let Ok(Some(guard)) = &result
            && self.is_beside_the_fallback(spec, guard.owner())
        {
            return Ok(None);
        }
        match self.fall_back(spec, result.as_ref().err()).await? {
            Some(other) => match other.try_acquire(spec).await? {
                Some(guard) => self.beside_the_store(spec, guard, Some(clock::now())).await,
                None => Ok(None),
            },
            None => result,
        }
    }

    async fn acquire(&self, spec: &Arc<Spec>, wait: &Wait) -> Result<Guard, Error> {
        let started = clock::now();
        let waited = || clock::now().since(started);
        let mut result = self.driver.acquire(spec, wait).await;
        let until = wait.within.map(|time| started + time);
        let late = || Error::TimedOut { name: spec.name.clone(), waited: waited() };
        loop {
            if self.waits(result.as_ref().err(), wait, waited()) {
                // The patience of the client may be as short as nothing.
                self.driver.pause_before_retry().await;
                result = self.driver.acquire(spec, &wait.after(waited())).await;
            } else if let Ok(guard) = &result
                && self.is_beside_the_fallback(spec, guard.owner())
            {
                let owner = guard.owner();
                // Released meanwhile: a task that has just got the lock of the fallback waits for it.
                drop(result);
                if !self.without_the_fallback(spec, owner, until).await {
                    return Err(late());
                }
                result = self.driver.acquire(spec, &wait.after(waited())).await;
            } else {
                break;
            }
        }
        match self.fall_back(spec, result.as_ref().err()).await? {
            Some(other) => {
                let guard = other.acquire(spec, &wait.after(waited())).await?;
                let guard = self.beside_the_store(spec, guard, until).await?;
                guard.ok_or_else(late)
            }
            None => result,
        }
    }

    /// Logs the holder of a lock that is waited for, once that takes too long.
    async fn warn_of_long_wait(&self, spec: &Arc<Spec>, started: Moment) {
        let Some(after) = self.warn_waiting_after else { return };
        self.driver.alarm(started + after).await;
        let name = &spec.name;
        let info = self.driver.engine.inspect(name.clone()).await;
        let info = info.map_err(|error| failed(name, "inspect", error));
        telemetry::waits_long(name, clock::now().since(started), info.as_ref());
    }

    /// Reports how an acquire has ended.
    fn conclude(
        &self,
        spec: &Spec,
        started: Moment,
        span: &Scope,
        mut result: Result<Option<Guard>, Error>,
    ) -> Result<Option<Guard>, Error> {
        let waited = clock::now().since(started);
        telemetry::acquired(&result, spec.group, waited);
        span.acquired(&result);
        if let Ok(Some(guard)) = &mut result {
            guard.begin(waited);
        }
        result
    }
}

impl Tenure {
    /// What the locks of the store can do.
    pub fn features(&self) -> Features {
        self.client.driver.engine.capabilities().features
    }

    /// The name of the engine, for messages.
    pub(crate) fn engine_name(&self) -> &'static str {
        self.client.driver.engine.capabilities().engine
    }
}

/// Runs `work` to its end, and something else beside it, until then at most.
async fn beside<T>(
    mut work: Pin<&mut impl Future<Output = T>>,
    mut other: Pin<&mut impl Future<Output = ()>>,
) -> T {
    let mut is_done = false;
    poll_fn(|context| {
        is_done = is_done || other.as_mut().poll(context).is_ready();
        work.as_mut().poll(context)
    })
    .await
}

fn failed(name: &LockName, action: &'static str, error: StoreError) -> Error {
    Error::from_store(name, action, error)
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = self.engine_name();
        f.debug_struct("Tenure").field("engine", &engine).finish_non_exhaustive()
    }
}
