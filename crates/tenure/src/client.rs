//! The client: connects to a store and makes locks.

mod builder;
mod fallback;

pub use builder::Builder;
pub use fallback::Fallback;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::barrier::Barrier;
use crate::clock;
use crate::core::lease::{self, Lease};
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::core::shape::{Kind, Shape};
use crate::driver::{Driver, Identity, PATIENCE, Spec};
use crate::election::Election;
use crate::engine::{
    Engine, Finding, ForceOutcome, ForceRequest, Grant, Health, ListRequest, MemoryEngine,
    ReleaseOutcome, ReleaseRequest, Renewal, Renewed,
};
use crate::error::{Error, Invalid, Lost, StoreError, WhyLost};
use crate::guard::{Guard, Released};
use crate::handle::Handle;
use crate::info::{About, LockInfo};
use crate::latch::Latch;
use crate::lock::Lock;
use crate::owner::Owner;
use crate::rwlock::RwLock;
use crate::semaphore::Semaphore;
use crate::sync::lock;
use crate::telemetry;
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
}

/// How long a record may stay. All engines count it in 64 bits; a year is enough.
const LONGEST_RECORD: Duration = Duration::from_secs(366 * 24 * 3600);

impl Tenure {
    /// Connects to the store at `url`.
    ///
    /// - `redis://[user:password@]host[:port][/database]`, `valkey://…`, `unix:///path/to/socket`:
    ///   a Redis or Valkey server.
    /// - `rediss://…`, `valkeys://…`: the same over TLS. The server's certificate must be valid for
    ///   the host and signed by an authority that the system trusts, or by one in the file
    ///   `?ca=FILE`. `?cert=FILE&key=FILE` is this client's own certificate, for a server that
    ///   requires one. The files are PEM, and are read again for every new connection.
    /// - `redis+sentinel://[user:password@]s1[:26379],s2,…/master[/database]`: the master that Sentinels
    ///   name, followed through failovers. The Sentinels' own login is `?sentinel_user=…` and
    ///   `&sentinel_password=…`; `rediss+sentinel://…` is TLS to all of them.
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

    /// Returns the lock of this name.
    pub fn lock<N>(&self, name: N) -> Lock
    where
        N: TryInto<LockName>,
        N::Error: Into<Invalid>,
    {
        self.part_of(name, Ok(Shape::mutex()))
    }

    /// Returns the read-write lock of this name.
    pub fn rwlock<N>(&self, name: N) -> RwLock
    where
        N: TryInto<LockName>,
        N::Error: Into<Invalid>,
    {
        let shape = |permits| Shape::new(Kind::ReadWrite, Shape::MAX_LIMIT, permits);
        let reader = self.part_of(name, shape(1)).scoped();
        let writer = reader.clone().with_shape(shape(Shape::MAX_LIMIT));
        RwLock::new(reader, writer)
    }

    /// Returns the semaphore of this name, with `limit` permits.
    pub fn semaphore<N>(&self, name: N, limit: u32) -> Semaphore
    where
        N: TryInto<LockName>,
        N::Error: Into<Invalid>,
    {
        let shape = Shape::new(Kind::Semaphore, limit, 1);
        Semaphore::new(self.part_of(name, shape), limit)
    }

    /// Returns the latch of this name, which opens when it has been counted down `count` times.
    pub fn latch<N>(&self, name: N, count: u32) -> Latch
    where
        N: TryInto<LockName>,
        N::Error: Into<Invalid>,
    {
        let shape = Shape::new(Kind::Latch, count, 0);
        let lock = self.part_of(name, shape).fixed_lease(Lease::MAX.duration());
        Latch::new(lock, count)
    }

    /// Returns the barrier of this name, for up to 1,000 parties.
    pub fn barrier<N>(&self, name: N, parties: u32) -> Barrier
    where
        N: TryInto<LockName>,
        N::Error: Into<Invalid>,
    {
        let shape = Shape::new(Kind::Barrier, parties, 1);
        let lock = self.part_of(name, shape).fixed_lease(Lease::DEFAULT.duration());
        Barrier::new(lock)
    }

    /// Returns the election of this name.
    pub fn election<N>(&self, name: N) -> Election
    where
        N: TryInto<LockName>,
        N::Error: Into<Invalid>,
    {
        Election::new(self.lock(name))
    }

    fn part_of<N>(&self, name: N, shape: Result<Shape, Invalid>) -> Lock
    where
        N: TryInto<LockName>,
        N::Error: Into<Invalid>,
    {
        let named = name.try_into().map_err(Into::into);
        let spec = named.and_then(|name| {
            Ok(Spec {
                name,
                shape: shape?,
                lease: self.client.lease,
                is_watched: true,
                at_least: 0,
                is_fair: false,
                identity: Identity::Each,
                about: self.client.about.clone(),
            })
        });
        Lock::new(self.clone(), spec)
    }

    /// Returns up to `limit` locks that have holders or waiters and whose names start with `prefix`, sorted
    /// by name, each as of one moment. A lock that the store cannot read is included, with its
    /// [error](LockInfo::error).
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockInfo>, Error> {
        self.client.driver.check()?;
        let request = ListRequest { prefix: prefix.to_owned(), limit };
        let listed = self.client.driver.engine.list(request).await;
        listed.map_err(|error| Error::List { error })
    }

    /// Extends the lease of a detached lock, by the length it was acquired with.
    ///
    /// # Errors
    /// Returns [`Error::Lost`] if it is not held any more, or an error if the store fails.
    pub async fn renew(&self, handle: &Handle) -> Result<(), Error> {
        self.renew_until(handle, handle.lease()).await.map(drop)
    }

    /// Extends the lease of a detached lock to this length from now on; a renewal never shortens it. A later
    /// [`Tenure::renew`] uses the length in the handle again.
    ///
    /// # Errors
    /// A lease that is too short or too long, or as for [`Tenure::renew`].
    pub async fn renew_for(&self, handle: &Handle, lease: Duration) -> Result<(), Error> {
        self.renew_until(handle, Lease::new(lease)?).await.map(drop)
    }

    /// Releases a detached lock.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub async fn release(&self, handle: &Handle) -> Result<Released, Error> {
        self.release_and_linger(handle, Duration::ZERO).await
    }

    /// Records under a name that something was done, such as a job that is to run once per month. The record stays
    /// for this time, up to 366 days, far beyond any lease and without a process. False if there is one already,
    /// which is left as it is.
    ///
    /// It is a semaphore of that name whose one permit was released and lingers: [`Lock::inspect`] shows it, and
    /// [`Tenure::force_release`] deletes it. On a server the client behind it is described for 25 hours, if it
    /// was [left registered](Tenure::leave_registered).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # tenure::blocking::block_on(async {
    /// let tenure = tenure::Tenure::connect("memory:").await?;
    /// let month = Duration::from_secs(30 * 24 * 3600);
    /// assert!(tenure.record("invoices sent", month).await?);
    /// assert!(!tenure.record("invoices sent", month).await?, "it was done within the month");
    /// # Ok::<(), tenure::Error>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// Bad input, or an error of the store: then there may be a record or not.
    ///
    /// # Cancel safety
    /// Dropped, there may be a record or not.
    pub async fn record<N>(&self, name: N, time: Duration) -> Result<bool, Error>
    where
        N: TryInto<LockName>,
        N::Error: Into<Invalid>,
    {
        if time > LONGEST_RECORD {
            let sentence = format!("a record may be kept for up to 366 days, not {time:?}");
            return Err(Invalid::new(sentence).into());
        }
        // Not a mutex: the layout of its keys has room for a day.
        let record = self.semaphore(name, 1).permits(1);
        let Some(guard) = record.try_acquire().await? else { return Ok(false) };
        let handle = guard.detach().await?;
        match self.release_and_linger(&handle, time).await? {
            Released::AlreadyLost => {
                let name = handle.name().clone();
                Err(Lost { name, why: WhyLost::NotHeld }.into())
            }
            _ => Ok(true),
        }
    }

    async fn release_and_linger(
        &self,
        handle: &Handle,
        linger: Duration,
    ) -> Result<Released, Error> {
        self.client.driver.check()?;
        let (name, entry) = (handle.name().clone(), handle.entry());
        let request = ReleaseRequest { linger, ..ReleaseRequest::new(name, entry) };
        match self.client.driver.engine.release(request).await {
            Ok(ReleaseOutcome::Released { .. }) => Ok(Released::Now),
            Ok(ReleaseOutcome::NotHeld) => Ok(Released::AlreadyLost),
            Err(error) => Err(failed(handle.name(), "release", error)),
        }
    }

    /// Takes over a detached lock: renews it, and returns a guard whose lease the watchdog renews.
    ///
    /// # Errors
    /// Returns [`Error::Lost`] if it is not held any more, or an error if the store fails.
    pub async fn adopt(&self, handle: Handle) -> Result<Guard, Error> {
        let unmatched_losses = self.client.driver.unmatched_losses();
        let deadline = self.renew_until(&handle, handle.lease()).await?;
        let mut lock = self.lock(handle.name()).lease(handle.lease().duration());
        lock = lock.owner(handle.owner());
        let grant = Grant {
            fence: handle.fence(),
            fences: 1,
            lease: handle.lease().duration(),
            at: Moment::ZERO,
        };
        let spec = lock.spec()?;
        Ok(self.client.driver.hold(&spec, handle.entry(), grant, deadline, unmatched_losses))
    }

    /// Returns the state of the connections to the store, for a health check. It sends no request and does
    /// not wait.
    pub fn health(&self) -> Health {
        let mut health = self.client.driver.health();
        health.degraded = lock(&self.client.local).as_ref().map_or(0, |driver| driver.held_count());
        health
    }

    /// Checks the store's configuration and state, and returns findings with advice for an operator. It may
    /// take a second.
    ///
    /// # Errors
    /// Returns an error if the store cannot be reached.
    pub async fn checkup(&self) -> Result<Vec<Finding>, Error> {
        self.client.driver.check()?;
        let found = self.client.driver.engine.checkup().await;
        found.map_err(|error| Error::Connect { error })
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

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.client.driver
    }

    /// Identifies the store, with the same text for all its clients.
    pub(crate) fn place(&self) -> String {
        self.client.driver.engine.place()
    }

    pub(crate) async fn try_acquire(&self, spec: &Arc<Spec>) -> Result<Option<Guard>, Error> {
        let started = clock::now();
        let mut result = self.client.driver.try_acquire(spec).await;
        if let Some(other) = self.client.fall_back(&spec.name, result.as_ref().err()).await? {
            result = other.try_acquire(spec).await;
        }
        telemetry::acquired(&result, clock::now().since(started));
        result
    }

    pub(crate) async fn acquire(&self, spec: &Arc<Spec>, wait: &Wait) -> Result<Guard, Error> {
        let started = clock::now();
        let waited = || clock::now().since(started);
        let mut result = self.client.driver.acquire(spec, wait).await;
        while self.client.waits(result.as_ref().err(), wait, waited()) {
            result = self.client.driver.acquire(spec, &wait.after(waited())).await;
        }
        if let Some(other) = self.client.fall_back(&spec.name, result.as_ref().err()).await? {
            result = other.acquire(spec, &wait.after(waited())).await;
        }
        let result = result.map(Some);
        telemetry::acquired(&result, clock::now().since(started));
        result.map(|guard| guard.expect("an acquire ends with a guard or an error"))
    }

    pub(crate) async fn inspect(&self, name: LockName) -> Result<LockInfo, Error> {
        self.client.driver.check()?;
        let inspected = self.client.driver.engine.inspect(name.clone()).await;
        inspected.map_err(|error| failed(&name, "inspect", error))
    }

    /// Takes a lock away from `expected`, or from all holders, and keeps a record with a reason of at most
    /// 1024 bytes.
    ///
    /// # Errors
    /// Returns an error if the reason is too long or the store fails.
    pub async fn force_release(
        &self,
        name: LockName,
        expected: Option<Owner>,
        reason: &str,
    ) -> Result<ForceOutcome, Error> {
        self.client.driver.check()?;
        let by = self.client.about.clone();
        let reason = About::checked_note("a reason", reason)?;
        let request = ForceRequest { name: name.clone(), expected, reason, by };
        let forced = self.client.driver.engine.force_release(request).await;
        forced.map_err(|error| failed(&name, "force the release of", error))
    }

    async fn renew_until(&self, handle: &Handle, lease: Lease) -> Result<Moment, Error> {
        self.client.driver.check()?;
        let (name, owner) = (handle.name().clone(), handle.owner());
        let sent = clock::now();
        let renewal = Renewal { name: name.clone(), owner, lease };
        match self.client.driver.renew_one(renewal).await {
            Ok(Renewed::Extended) => Ok(lease::deadline(sent, lease.duration())),
            Ok(Renewed::NotHeld) => Err(Lost { name, why: WhyLost::NotHeld }.into()),
            Err(error) => Err(failed(&name, "renew", error)),
        }
    }
}

fn failed(name: &LockName, action: &'static str, error: StoreError) -> Error {
    Error::from_store(name, action, error)
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = self.client.driver.engine.capabilities().engine;
        f.debug_struct("Tenure").field("engine", &engine).finish_non_exhaustive()
    }
}
