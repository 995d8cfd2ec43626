//! A read-write lock: many readers, or one writer.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use crate::error::Error;
use crate::guard::{Guard, Released};
use crate::info::LockInfo;
use crate::lock::Lock;
use crate::owner::Owner;

/// A read-write lock: many readers at once, or one writer. It is first come, first served: later readers do
/// not overtake a waiting writer. Every reader has a lease of its own, so a reader that crashes blocks a
/// writer for its own lease at most.
///
/// Readers of one process share a lease if they can, within bounds: up to 64 of them, which arrive within
/// 50 ms of the first. With [`RwLock::fair`] each has its own.
///
/// Inside [`Owner::scope`] (and on a thread, in the blocking API) the lock is re-entrant. A writer
/// may read; a reader that tries to write gets [`Error::Upgrade`], because it would wait for itself.
///
/// # Examples
///
/// ```
/// # tenure::blocking::block_on(async {
/// let tenure = tenure::Tenure::connect("memory:").await?;
/// let config = tenure.rwlock("config");
///
/// let one = config.read().await?;
/// let other = config.read().await?;
/// assert!(config.try_write().await?.is_none());
/// drop((one, other));
///
/// let writer = config.write().await?;
/// let reader = writer.downgrade().await; // others may read now, and none wrote in between
/// assert!(config.try_read().await?.is_some());
/// # drop(reader);
/// # Ok::<(), tenure::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct RwLock {
    reader: Lock,
    writer: Lock,
}

impl RwLock {
    pub(crate) fn new(reader: Lock, writer: Lock) -> Self {
        Self { reader, writer }
    }

    crate::lock::forward_options!(reader, writer);

    /// Returns the read side as a [`Lock`], with all its methods.
    pub fn reader(&self) -> Lock {
        self.reader.clone()
    }

    /// Returns the write side as a [`Lock`], with all its methods.
    pub fn writer(&self) -> Lock {
        self.writer.clone()
    }

    /// Acquires the lock for reading.
    ///
    /// # Errors
    /// As for [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn read(&self) -> Result<Guard, Error> {
        self.reader.acquire().await
    }

    /// Acquires the lock for reading, and waits for at most `time`.
    ///
    /// # Errors
    /// As for [`Lock::acquire_within`].
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn read_within(&self, time: Duration) -> Result<Guard, Error> {
        self.reader.acquire_within(time).await
    }

    /// Makes one attempt to acquire the lock for reading: returns `None` if there is a writer, or one waits.
    ///
    /// # Errors
    /// As for [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    /// As for [`Lock::try_acquire`].
    pub async fn try_read(&self) -> Result<Option<Guard>, Error> {
        self.reader.try_acquire().await
    }

    /// Acquires the lock for writing.
    ///
    /// # Errors
    /// As for [`Lock::acquire`], and [`Error::Upgrade`] if the same owner reads.
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn write(&self) -> Result<WriteGuard, Error> {
        self.writer.acquire().await.map(WriteGuard)
    }

    /// Acquires the lock for writing, and waits for at most `time`.
    ///
    /// # Errors
    /// As for [`Lock::acquire_within`], and [`Error::Upgrade`] if the same owner reads.
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn write_within(&self, time: Duration) -> Result<WriteGuard, Error> {
        self.writer.acquire_within(time).await.map(WriteGuard)
    }

    /// Makes one attempt to acquire the lock for writing: returns `None` if there are other holders or
    /// waiters.
    ///
    /// # Errors
    /// As for [`Lock::try_acquire`], and [`Error::Upgrade`] if the same owner reads.
    ///
    /// # Cancel safety
    /// As for [`Lock::try_acquire`].
    pub async fn try_write(&self) -> Result<Option<WriteGuard>, Error> {
        Ok(self.writer.try_acquire().await?.map(WriteGuard))
    }

    /// Returns the readers or the writer, and the waiters.
    ///
    /// # Errors
    /// As for [`Lock::inspect`].
    pub async fn inspect(&self) -> Result<LockInfo, Error> {
        self.reader.inspect().await
    }

    /// Returns the same lock for code that is not async.
    pub fn blocking(self) -> crate::blocking::RwLock {
        crate::blocking::RwLock::new(self)
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RwLock").field(&self.reader).finish()
    }
}

/// A lock held for writing. It dereferences to [`Guard`].
#[derive(Debug)]
#[must_use = "the lock is released as soon as the guard is dropped; bind it to a name"]
pub struct WriteGuard(pub(crate) Guard);

impl WriteGuard {
    /// Downgrades to a reader, atomically: no other writer can come in between. The guard is a reader's at
    /// once; if the store cannot be reached, the downgrade is retried in the background, and other readers
    /// wait until it succeeds.
    ///
    /// An owner that has entered more than once stays a writer until all of its guards are dropped.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock is released.
    pub async fn downgrade(self) -> Guard {
        self.0.keep(1).await;
        self.0
    }

    /// Releases the lock, and returns whether it was held until now.
    ///
    /// # Errors
    /// As for [`Guard::release`].
    ///
    /// # Cancel safety
    /// As for [`Guard::release`].
    pub async fn release(self) -> Result<Released, Error> {
        self.0.release().await
    }

    /// Returns the plain guard, which cannot be downgraded.
    pub fn into_guard(self) -> Guard {
        self.0
    }
}

impl Deref for WriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}
