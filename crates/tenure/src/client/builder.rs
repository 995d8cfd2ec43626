//! Makes clients.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Client, Fallback, Tenure};
use crate::core::lease::Lease;
use crate::driver::{Driver, PATIENCE};
#[cfg(feature = "local")]
use crate::engine::LocalEngine;
use crate::engine::{Engine, MemoryEngine};
use crate::error::{Error, Invalid};
use crate::info::About;
#[cfg(feature = "local")]
use crate::thread;

/// Makes a client with other defaults.
///
/// ```
/// use std::time::Duration;
/// use tenure::{Fallback, Tenure, engine::MemoryEngine};
///
/// let tenure = Tenure::builder()
///     .lease(Duration::from_secs(10))
///     .fallback(Fallback::Local)
///     .engine(MemoryEngine::new())?;
/// # Ok::<(), tenure::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a builder makes nothing until it is told the engine"]
pub struct Builder {
    lease: Result<Lease, Invalid>,
    fallback: Fallback,
    patience: Duration,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self { lease: Ok(Lease::DEFAULT), fallback: Fallback::Fail, patience: PATIENCE }
    }

    /// The lease of locks that do not choose their own; 30 s if not set.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Lease::new(lease);
        self
    }

    /// What to do when the store cannot be reached.
    pub fn fallback(mut self, fallback: Fallback) -> Self {
        self.fallback = fallback;
        self
    }

    /// How long an acquire, or a release that is refused, endures trouble with the store before it
    /// reports it; 5 s if not set.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Connects to the store at `url`, as [`Tenure::connect`] does.
    ///
    /// # Errors
    /// When the URL is not understood, the store cannot be reached, or a default is out of range.
    pub async fn connect(self, url: &str) -> Result<Tenure, Error> {
        if url == "memory:" {
            return self.engine(MemoryEngine::new());
        }
        #[cfg(feature = "local")]
        if url.starts_with("local:") {
            // It waits for others, so that it must not keep the caller's thread.
            let url = url.to_owned();
            let opening = thread::compute("tenure-open", move || LocalEngine::connect(&url));
            return self.engine(opening.await.map_err(|source| Error::Thread { source })??);
        }
        #[cfg(feature = "redis")]
        return self.engine(crate::engine::RedisEngine::connect(url).await?);
        #[cfg(not(feature = "redis"))]
        Err(Error::Invalid(Invalid::new(
            "without the feature `redis`, the URL must be `memory:`, or `local:` with the feature \
             `local`",
        )))
    }

    /// A client of this engine.
    ///
    /// # Errors
    /// When a default is out of range, or no thread can be started.
    pub fn engine(self, engine: impl Engine) -> Result<Tenure, Error> {
        let client = Client {
            lease: self.lease?,
            driver: Driver::start(Box::new(engine), self.patience, false)?,
            fallback: self.fallback,
            stand_in: Mutex::default(),
            about: Arc::new(About::this_process()),
        };
        Ok(Tenure { client: Arc::new(client) })
    }
}
