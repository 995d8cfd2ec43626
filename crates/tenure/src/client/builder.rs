//! Builds clients.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Client, Fallback, Tenure};
use crate::blocking::block_on;
use crate::core::fence::RETENTION;
use crate::core::lease::Lease;
use crate::driver::{Driver, PATIENCE, Replication, Settings, no_replicas};
#[cfg(all(feature = "local", target_os = "linux"))]
use crate::engine::LocalEngine;
use crate::engine::{Engine, MemoryEngine, Replicas};
#[cfg(feature = "redis")]
use crate::engine::{Protocol, QuorumEngine, RedisEngine, RedisOptions};
use crate::error::{Error, Invalid};
use crate::events::{Event, EventSink};
use crate::foreign;
use crate::info::About;
use crate::telemetry;
#[cfg(all(feature = "local", target_os = "linux"))]
use crate::thread;

/// Builds a client with other defaults.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure::{Fallback, Tenure, engine::MemoryEngine};
///
/// let tenure = Tenure::builder()
///     .lease(Duration::from_secs(10))
///     .fallback(Fallback::Process)
///     .engine(MemoryEngine::new())?;
/// # Ok::<(), tenure::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until `connect` or `engine` is called"]
pub struct Builder {
    lease: Result<Lease, Invalid>,
    fallback: Fallback,
    patience: Duration,
    about: Result<About, Invalid>,
    retention: Result<Duration, Invalid>,
    reads_on_runtime: bool,
    replication: Result<Option<Replication>, Invalid>,
    #[cfg(feature = "redis")]
    protocol: Protocol,
    events: Arc<EventSink>,
    callback: Option<Callback>,
    warn_held_after: Option<Duration>,
    warn_waiting_after: Option<Duration>,
}

/// A function that gets the events.
struct Callback(Box<dyn FnMut(&Event) + Send>);

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            lease: Ok(Lease::DEFAULT),
            fallback: Fallback::Fail,
            patience: PATIENCE,
            about: Ok(About::this_process()),
            retention: Ok(RETENTION),
            reads_on_runtime: false,
            replication: Ok(None),
            #[cfg(feature = "redis")]
            protocol: Protocol::Tenure,
            events: Arc::default(),
            callback: None,
            warn_held_after: None,
            warn_waiting_after: None,
        }
    }

    /// Sets the lease of locks that do not set their own. The default is 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Lease::new(lease);
        self
    }

    /// Sets what to do when the store cannot be reached. The default is [`Fallback::Fail`].
    pub fn fallback(mut self, fallback: Fallback) -> Self {
        self.fallback = fallback;
        self
    }

    /// Sets how long an acquire, or a release that is refused, retries after errors of the store before it
    /// returns them. The default is 5 s.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets for how long, at least, a server keeps the last fence of a lock after the lock has become free:
    /// 1 s to 24 h. The default is 30 s.
    ///
    /// Within this time fences grow whatever the server's clock says (I4). A lock that was unused for longer
    /// takes its next fence from the clock alone: it is smaller than the last one if the clock was set back, or
    /// a server whose clock is behind has taken over, by more than the time since the last grant. So the
    /// retention should be longer than any clock step that can be expected.
    ///
    /// If clients with different retentions use the same lock, that of its last holder counts. Clients that only
    /// wait for it or inspect it do not shorten it. Every name that is used costs the server memory for this
    /// time, and for the rest of the last lease if that is a minute at most; after a crash for a minute or two
    /// longer, or for the longest lease of its holders and waiters.
    pub fn fence_retention(mut self, time: Duration) -> Self {
        let range = Duration::from_secs(1)..=Duration::from_secs(24 * 3600);
        let wrong =
            || Invalid::new(format!("a fence may be kept for 1 s to 24 h, not for {time:?}"));
        self.retention = if range.contains(&time) { Ok(time) } else { Err(wrong()) };
        self
    }

    /// Reads the server's replies on the tokio runtime on which [`Builder::connect`] is called, instead of
    /// on a thread of its own: the tasks of that runtime are then woken by one of its own threads, which
    /// makes a call faster and cheaper. Renewals, and so the leases, do not depend on it.
    ///
    /// For a service whose tasks run on one runtime that outlives the client. Its I/O must be enabled, as
    /// `#[tokio::main]` does. While all its threads are blocked, replies are read with a delay of up to half
    /// a second. On Windows it has no effect.
    pub fn read_on_this_runtime(mut self) -> Self {
        self.reads_on_runtime = true;
        self
    }

    /// Waits for replicas of the server at every acquire of a lock that does not set its own, as
    /// [`Lock::wait_replicas`](crate::Lock::wait_replicas) does. Latches and barriers do not wait for them.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::Tenure;
    ///
    /// let builder = Tenure::builder().wait_replicas(1, Duration::from_millis(500));
    /// # let refused = tenure::blocking::block_on(builder.connect("memory:")).unwrap_err();
    /// # assert!(refused.to_string().contains("no replicas"));
    /// ```
    pub fn wait_replicas(self, count: u32, within: Duration) -> Self {
        self.with_replication(count, within, false)
    }

    /// Waits for replicas also at renewals, as
    /// [`Lock::wait_replicas_on_renewal`](crate::Lock::wait_replicas_on_renewal) does.
    pub fn wait_replicas_on_renewal(self, count: u32, within: Duration) -> Self {
        self.with_replication(count, within, true)
    }

    fn with_replication(mut self, count: u32, within: Duration, is_for_renewals: bool) -> Self {
        let replicas = Replicas::new(count, within);
        self.replication = replicas.map(|replicas| Some(Replication { replicas, is_for_renewals }));
        self
    }

    /// Calls `callback` for every [`Event`] of this client, in order, on a thread of its own: it may block, and locks are not
    /// affected. If it falls behind by more than 1,024 events, it misses the oldest ones.
    ///
    /// # Examples
    ///
    /// ```
    /// use tenure::{Tenure, engine::MemoryEngine};
    ///
    /// let tenure = Tenure::builder()
    ///     .on_event(|event| eprintln!("{event}"))
    ///     .engine(MemoryEngine::new())?;
    /// # Ok::<(), tenure::Error>(())
    /// ```
    pub fn on_event(mut self, callback: impl FnMut(&Event) + Send + 'static) -> Self {
        self.callback = Some(Callback(Box::new(callback)));
        self
    }

    /// Logs a warning (by `tracing`) when a lock of this client is held for longer than `time`, once for each guard. It is
    /// noticed with a renewal.
    pub fn warn_held_after(mut self, time: Duration) -> Self {
        self.warn_held_after = Some(time);
        self
    }

    /// Logs a warning (by `tracing`) when an acquire of this client takes longer than `time`, with the holder and its note, for
    /// which the store is asked once.
    pub fn warn_waiting_after(mut self, time: Duration) -> Self {
        self.warn_waiting_after = Some(time);
        self
    }

    /// Sets how this client's holds are described to people. The default is
    /// [this process](About::this_process). For a program that works on behalf of another, or that ends
    /// before its locks do. Its note is used for locks that do not set their own.
    ///
    /// # Examples
    ///
    /// ```
    /// use tenure::{About, Tenure};
    ///
    /// let mut about = About::this_process();
    /// about.program = "backup.sh".into();
    /// let tenure = Tenure::builder().about(about);
    /// ```
    pub fn about(mut self, about: About) -> Self {
        let texts = [("a host's name", &about.host), ("a program's name", &about.program)];
        let note = about.note.iter().map(|note| ("a note", note));
        let checked = texts
            .into_iter()
            .chain(note)
            .try_for_each(|(what, text)| About::checked_note(what, text).map(drop));
        self.about = checked.map(|()| about);
        self
    }

    /// Shares locks with Java services that use Redisson: stores an `RLock`, an `RReadWriteLock`, an `RSemaphore` or an
    /// `RCountDownLatch` of the same name, in Redisson's format. In a URL: `?protocol=redisson`.
    ///
    /// What Redisson's format does not have is refused with a sentence: `fair`, elections, notes, least holding times and
    /// barriers. An `RLock` has no fence either: [`Guard::fence`](crate::Guard::fence) is [`Fence::NONE`](crate::Fence::NONE),
    /// which the checks of fences refuse. See [`Builder::redisson_fenced`].
    #[cfg(feature = "redis")]
    pub fn redisson(mut self) -> Self {
        self.protocol = Protocol::Redisson { is_fenced: false };
        self
    }

    /// As [`Builder::redisson`], with an `RFencedLock` for each mutex, whose token is the fence. In a URL:
    /// `?protocol=redisson&fenced=true`. Every name that is used leaves a key with the last token in the server for ever.
    #[cfg(feature = "redis")]
    pub fn redisson_fenced(mut self) -> Self {
        self.protocol = Protocol::Redisson { is_fenced: true };
        self
    }

    /// Connects to the store at `url`, as [`Tenure::connect`] does.
    ///
    /// # Errors
    /// Returns an error if the URL is invalid, the store cannot be reached, or a default is out of range.
    pub async fn connect(self, url: &str) -> Result<Tenure, Error> {
        #[cfg(feature = "redis")]
        if self.protocol != Protocol::Tenure && (url.starts_with("local:") || url == "memory:") {
            let why =
                "Redisson's format is for a Redis or Valkey server: write redis://… for the URL";
            return Err(Error::Invalid(Invalid::new(why)));
        }
        if url == "memory:" {
            return self.engine(MemoryEngine::new());
        }
        #[cfg(all(feature = "local", target_os = "linux"))]
        if url.starts_with("local:") {
            // Opening waits for other processes, so it must not block the caller's thread.
            let url = url.to_owned();
            let opening = thread::compute("tenure-open", move || LocalEngine::connect(&url));
            return self.engine(opening.await.map_err(|source| Error::Thread { source })??);
        }
        #[cfg(not(all(feature = "local", target_os = "linux")))]
        if url.starts_with("local:") {
            let why = match cfg!(feature = "local") {
                true => "a local store needs Linux: name a server, or `memory:`",
                false => "a local store needs the feature `local`",
            };
            return Err(Error::Invalid(Invalid::new(why)));
        }
        #[cfg(feature = "redis")]
        {
            let options = RedisOptions {
                about: self.about.clone()?,
                retention: self.retention.clone()?,
                runtime: self.reads_on_runtime.then(this_runtime).transpose()?,
                protocol: self.protocol,
                ..RedisOptions::default()
            };
            if QuorumEngine::is_scheme_of(url) {
                return self.engine(QuorumEngine::connect_as(url, options).await?);
            }
            self.engine(RedisEngine::connect_as(url, options).await?)
        }
        #[cfg(not(feature = "redis"))]
        Err(Error::Invalid(Invalid::new(
            "without the feature `redis`, the URL must be `memory:` or `local:`",
        )))
    }

    /// Builds a client of this engine.
    ///
    /// # Errors
    /// Returns an error if a default is out of range or no thread can be started.
    pub fn engine(self, engine: impl Engine) -> Result<Tenure, Error> {
        self.retention?;
        self.fallback.check()?;
        let (replication, capabilities) = (self.replication?, engine.capabilities());
        if replication.is_some() && !capabilities.has_replicas {
            return Err(no_replicas(capabilities.engine));
        }
        if let Some(callback) = self.callback {
            call_back(&self.events, callback)?;
        }
        telemetry::describe();
        let settings = Settings {
            patience: self.patience,
            fallback: None,
            events: self.events,
            warn_held_after: self.warn_held_after,
        };
        let client = Client {
            lease: self.lease?,
            driver: Driver::start(Box::new(engine), settings)?,
            fallback: self.fallback,
            local: Mutex::default(),
            about: Arc::new(self.about?),
            replication,
            warn_waiting_after: self.warn_waiting_after,
        };
        Ok(Tenure { client: Arc::new(client) })
    }
}

/// Starts the thread that calls back, until the client and its guards are dropped.
fn call_back(events: &Arc<EventSink>, Callback(mut callback): Callback) -> Result<(), Error> {
    let mut events = events.subscribe();
    let run = move || {
        block_on(async {
            while let Some(event) = events.next().await {
                foreign::call(|| callback(&event));
            }
        });
    };
    let started = std::thread::Builder::new().name("tenure-events".into()).spawn(run);
    started.map(drop).map_err(|source| Error::Thread { source: Arc::new(source) })
}

/// The caller's runtime, whose I/O must be enabled.
#[cfg(feature = "redis")]
fn this_runtime() -> Result<tokio::runtime::Handle, Invalid> {
    let runtime = tokio::runtime::Handle::try_current();
    let runtime = runtime.map_err(|_| {
        Invalid::new("a client that reads on this runtime must be connected on a tokio runtime")
    })?;
    if !has_io() {
        return Err(Invalid::new(
            "a client that reads on this runtime needs the runtime's I/O: call `enable_io` or `enable_all` \
             where the runtime is built",
        ));
    }
    Ok(runtime)
}

/// Whether the I/O of the current runtime is enabled. Tokio has no query for this: it panics if it is not.
#[cfg(all(feature = "redis", unix))]
fn has_io() -> bool {
    crate::foreign::call(tokio::net::UnixDatagram::unbound).is_some()
}

/// Not needed: on Windows the client's own thread reads all the same.
#[cfg(all(feature = "redis", windows))]
fn has_io() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R14: other clients see the description of a client, and a name that is too long is refused.
    #[tokio::test]
    async fn a_client_says_who_it_is() {
        let about = About { program: "backup.sh".into(), pid: 0, ..About::this_process() };
        let tenure = Tenure::builder().about(about).connect("memory:").await.unwrap();
        let lock = tenure.lock("x").note("nightly");
        let _guard = lock.acquire().await.unwrap();
        let seen = lock.inspect().await.unwrap().holders[0].about.clone();
        assert_eq!((&*seen.program, seen.pid), ("backup.sh", 0));
        assert_eq!(seen.note.as_deref(), Some("nightly"));
        let long = About { program: "x".repeat(1025).into(), ..About::this_process() };
        let refused = Tenure::builder().about(long).connect("memory:").await.unwrap_err();
        assert!(refused.to_string().contains("at most 1024 bytes"), "{refused}");
    }
}
