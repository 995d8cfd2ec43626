//! A read-write lock: many readers, or one writer.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use crate::error::Error;
use crate::guard::{Guard, Released};
use crate::info::LockInfo;
use crate::lock::Lock;
use crate::owner::Owner;

/// Many readers at once, or one writer alone. First come, first served: a writer that waits is not
/// overtaken by later readers. Every reader has a lease of its own, so one that crashes keeps a
/// writer out for its own lease at most.
///
/// Readers of one process share a lease where they can, within bounds: 64 of them, and those that
/// come within 50 ms of the first. With [`RwLock::fair`] each has its own.
///
/// Inside [`Owner::scope`] (and on a thread, in the blocking API) the lock is re-entrant. A writer
/// may read; a reader that asks to write is refused with [`Error::Upgrade`], because it would wait
/// for itself.
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
/// let reader = writer.downgrade().await; // others may read now, and nobody wrote in between
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

    /// The right to read as a lock, for all that a [`Lock`] can do.
    pub fn reader(&self) -> Lock {
        self.reader.clone()
    }

    /// The right to write as a lock, for all that a [`Lock`] can do.
    pub fn writer(&self) -> Lock {
        self.writer.clone()
    }

    /// Waits until it may read.
    ///
    /// # Errors
    /// As for [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn read(&self) -> Result<Guard, Error> {
        self.reader.acquire().await
    }

    /// Waits for this time at most until it may read.
    ///
    /// # Errors
    /// As for [`Lock::acquire_within`].
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn read_within(&self, time: Duration) -> Result<Guard, Error> {
        self.reader.acquire_within(time).await
    }

    /// The right to read, or none if somebody writes, or waits to.
    ///
    /// # Errors
    /// As for [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    /// As for [`Lock::try_acquire`].
    pub async fn try_read(&self) -> Result<Option<Guard>, Error> {
        self.reader.try_acquire().await
    }

    /// Waits until it may write.
    ///
    /// # Errors
    /// As for [`Lock::acquire`], and [`Error::Upgrade`] if the same owner reads.
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn write(&self) -> Result<WriteGuard, Error> {
        self.writer.acquire().await.map(WriteGuard)
    }

    /// Waits for this time at most until it may write.
    ///
    /// # Errors
    /// As for [`Lock::acquire_within`], and [`Error::Upgrade`] if the same owner reads.
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn write_within(&self, time: Duration) -> Result<WriteGuard, Error> {
        self.writer.acquire_within(time).await.map(WriteGuard)
    }

    /// The right to write, or none if somebody reads or writes, or waits to.
    ///
    /// # Errors
    /// As for [`Lock::try_acquire`], and [`Error::Upgrade`] if the same owner reads.
    ///
    /// # Cancel safety
    /// As for [`Lock::try_acquire`].
    pub async fn try_write(&self) -> Result<Option<WriteGuard>, Error> {
        Ok(self.writer.try_acquire().await?.map(WriteGuard))
    }

    /// Who reads or writes, and who waits.
    ///
    /// # Errors
    /// As for [`Lock::inspect`].
    pub async fn inspect(&self) -> Result<LockInfo, Error> {
        self.reader.inspect().await
    }

    /// The same for code that is not async.
    pub fn blocking(self) -> crate::blocking::RwLock {
        crate::blocking::RwLock::new(self)
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RwLock").field(&self.reader).finish()
    }
}

/// The right to write. It can do all that a [`Guard`] can.
#[derive(Debug)]
#[must_use = "the lock is released as soon as the guard is dropped; bind it to a name"]
pub struct WriteGuard(pub(crate) Guard);

impl WriteGuard {
    /// From writer to reader, without a moment in between in which others could write. The guard
    /// is a reader's at once; if the store cannot be reached, it is told in the background, and
    /// other readers wait for as long.
    ///
    /// An owner that has entered more than once stays a writer until its other guards are gone.
    ///
    /// # Cancel safety
    /// Dropped, the lock is released.
    pub async fn downgrade(self) -> Guard {
        self.0.keep(1).await;
        self.0
    }

    /// Releases the lock, and tells whether it was held until now.
    ///
    /// # Errors
    /// As for [`Guard::release`].
    ///
    /// # Cancel safety
    /// As for [`Guard::release`].
    pub async fn release(self) -> Result<Released, Error> {
        self.0.release().await
    }

    /// The guard without the way back to reading.
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
