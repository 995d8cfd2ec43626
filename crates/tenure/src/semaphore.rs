//! A semaphore: a number of permits.

use std::fmt;
use std::time::Duration;

use crate::core::shape::{Kind, Shape};
use crate::error::Error;
use crate::guard::Guard;
use crate::info::LockInfo;
use crate::lock::Lock;
use crate::owner::Owner;

/// A semaphore: a number of permits, of which each holder has one or more for as long as its guard lives.
/// The permits of a holder that crashes are free when its lease ends.
///
/// The latest request sets the limit: to change it, use another one, also while permits are held. After a
/// higher limit, waiters are served at once; after a lower one, none is served until enough permits have
/// been released. A waiter for more permits than the limit is served when all permits are free.
///
/// # Examples
///
/// ```
/// # tenure::blocking::block_on(async {
/// let tenure = tenure::Tenure::connect("memory:").await?;
/// let downloads = tenure.semaphore("downloads", 3);
///
/// let one = downloads.acquire().await?;
/// let two = downloads.acquire_many(2).await?;
/// assert!(downloads.try_acquire().await?.is_none());
/// drop(two);
/// assert_eq!(downloads.available().await?, 2);
/// # drop(one);
/// # Ok::<(), tenure::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Semaphore {
    lock: Lock,
    limit: u32,
}

impl Semaphore {
    pub(crate) fn new(lock: Lock, limit: u32) -> Self {
        Self { lock, limit }
    }

    crate::lock::forward_options!(lock);

    /// Returns a number of permits as a [`Lock`], with all its methods.
    pub fn permits(&self, permits: u32) -> Lock {
        self.lock.clone().with_shape(Shape::new(Kind::Semaphore, self.limit, permits))
    }

    /// Acquires one permit.
    ///
    /// # Errors
    /// As for [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn acquire(&self) -> Result<Guard, Error> {
        self.lock.acquire().await
    }

    /// Acquires several permits, all at once.
    ///
    /// # Errors
    /// As for [`Lock::acquire`]; more permits than the limit are refused.
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn acquire_many(&self, permits: u32) -> Result<Guard, Error> {
        self.permits(permits).acquire().await
    }

    /// Acquires one permit, and waits for at most `time`.
    ///
    /// # Errors
    /// As for [`Lock::acquire_within`].
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn acquire_within(&self, time: Duration) -> Result<Guard, Error> {
        self.lock.acquire_within(time).await
    }

    /// Makes one attempt to acquire one permit: returns `None` if all are taken or others wait.
    ///
    /// # Errors
    /// As for [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    /// As for [`Lock::try_acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.lock.try_acquire().await
    }

    /// Sets the limit in the store now, also for current waiters. Otherwise the next request does.
    ///
    /// # Errors
    /// As for [`Lock::try_acquire`]; refused in Redisson's format, where a limit is set once, by the first request.
    ///
    /// # Cancel safety
    /// As for [`Lock::try_acquire`].
    pub async fn apply_limit(&self) -> Result<(), Error> {
        let tenure = self.lock.tenure();
        if !tenure.features().has_limits {
            let what = "change the limit of a semaphore";
            return Err(self.lock.spec()?.lacks(tenure.engine_name(), what).into());
        }
        // A request sets the limit, whether or not it is granted.
        self.try_acquire().await.map(drop)
    }

    /// Returns how many permits are free.
    ///
    /// # Errors
    /// As for [`Lock::inspect`].
    pub async fn available(&self) -> Result<u32, Error> {
        let info = self.inspect().await?;
        let used: u32 = info.holders.iter().map(|holder| holder.permits).sum();
        let is_stored = !self.lock.tenure().features().has_limits && info.kind.is_some();
        let limit = if is_stored { info.limit } else { self.limit };
        Ok(limit.saturating_sub(used))
    }

    /// Returns the holders and waiters.
    ///
    /// # Errors
    /// As for [`Lock::inspect`].
    pub async fn inspect(&self) -> Result<LockInfo, Error> {
        self.lock.inspect().await
    }

    /// Returns the same semaphore for code that is not async.
    pub fn blocking(self) -> crate::blocking::Semaphore {
        crate::blocking::Semaphore::new(self)
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Semaphore").field(&self.lock).finish()
    }
}
