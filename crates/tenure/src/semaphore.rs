//! A semaphore: a set number of permits.

use std::fmt;
use std::time::Duration;

use crate::core::shape::{Kind, Shape};
use crate::error::Error;
use crate::guard::Guard;
use crate::info::LockInfo;
use crate::lock::Lock;
use crate::owner::Owner;

/// A set number of permits, of which each holder has one or more for as long as its guard lives.
/// The permits of a holder that crashes come back when its lease ends.
///
/// The limit is what the latest request says: to change it, use another one, also while permits are
/// held. With a higher limit those who wait are let in at once; with a lower one nobody is, until
/// enough permits have come back. Who waits for more permits than there are now is let in when all
/// others have left.
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

    /// So many permits as a lock, for all that a [`Lock`] can do.
    pub fn permits(&self, permits: u32) -> Lock {
        self.lock.clone().with_shape(Shape::new(Kind::Semaphore, self.limit, permits))
    }

    /// Waits until it has one permit.
    ///
    /// # Errors
    /// As for [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn acquire(&self) -> Result<Guard, Error> {
        self.lock.acquire().await
    }

    /// Waits until it has so many permits, all of them at once.
    ///
    /// # Errors
    /// As for [`Lock::acquire`]; more permits than the limit are refused.
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn acquire_many(&self, permits: u32) -> Result<Guard, Error> {
        self.permits(permits).acquire().await
    }

    /// Waits for this time at most until it has one permit.
    ///
    /// # Errors
    /// As for [`Lock::acquire_within`].
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn acquire_within(&self, time: Duration) -> Result<Guard, Error> {
        self.lock.acquire_within(time).await
    }

    /// One permit, or none if all are taken or others wait.
    ///
    /// # Errors
    /// As for [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    /// As for [`Lock::try_acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.lock.try_acquire().await
    }

    /// Makes this the limit now, for those who wait too. Without this, the next request does so.
    ///
    /// # Errors
    /// As for [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    /// As for [`Lock::try_acquire`].
    pub async fn apply_limit(&self) -> Result<(), Error> {
        // A request says what the limit is, whether or not there is room for it.
        self.try_acquire().await.map(drop)
    }

    /// How many permits are free.
    ///
    /// # Errors
    /// As for [`Lock::inspect`].
    pub async fn available(&self) -> Result<u32, Error> {
        let holders = self.inspect().await?.holders;
        let used: u32 = holders.iter().map(|holder| holder.permits).sum();
        Ok(self.limit.saturating_sub(used))
    }

    /// Who has permits, and who waits.
    ///
    /// # Errors
    /// As for [`Lock::inspect`].
    pub async fn inspect(&self) -> Result<LockInfo, Error> {
        self.lock.inspect().await
    }

    /// The same for code that is not async.
    pub fn blocking(self) -> crate::blocking::Semaphore {
        crate::blocking::Semaphore::new(self)
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Semaphore").field(&self.lock).finish()
    }
}
