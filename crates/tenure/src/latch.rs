//! A countdown latch.

use std::fmt;
use std::time::Duration;

use crate::core::shape::{Kind, Shape};
use crate::error::Error;
use crate::info::LockInfo;
use crate::lock::Lock;
use crate::owner::Owner;
use crate::wait::Wait;

/// A countdown latch: it opens when it has been counted down a number of times. Waiters then continue, and
/// later callers do not wait.
///
/// A count stays for 24 hours, or as long as [`Latch::keep_for`] says, also if the process that counted
/// ends. After that the latch is as new.
///
/// # Examples
///
/// ```
/// # tenure::blocking::block_on(async {
/// let tenure = tenure::Tenure::connect("memory:").await?;
/// let imported = tenure.latch("imports/2026-11-15", 2);
///
/// imported.count_down().await?;
/// assert_eq!(imported.count().await?, 1);
/// imported.count_down().await?;
/// imported.wait().await?; // both are done
/// # Ok::<(), tenure::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Latch {
    lock: Lock,
    count: u32,
}

impl Latch {
    pub(crate) fn new(lock: Lock, count: u32) -> Self {
        Self { lock: lock.without_fallback(), count }
    }

    /// Sets how long a count stays. The default is 24 hours, which is also the maximum. Refused in Redisson's format, where a latch
    /// stays until it is open.
    #[must_use]
    pub fn keep_for(mut self, time: Duration) -> Self {
        self.lock = self.lock.fixed_lease(time);
        self
    }

    /// Sets the note that is shown with each count.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.lock = self.lock.note(note);
        self
    }

    /// Sets the count of a latch that is not in use, where a request to count or to wait does not: in Redisson's format, where
    /// a latch that was not set is open. Without effect in a store in Tenure's own format, and if the latch was set.
    ///
    /// # Errors
    /// As for [`Latch::wait`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the count may have been set or not.
    pub async fn set_count(&self) -> Result<(), Error> {
        if self.lock.tenure().features().has_limits {
            return Ok(());
        }
        // To try to pass it, without waiting, sets it.
        if let Some(passed) = self.lock.try_acquire().await? {
            passed.forget();
        }
        Ok(())
    }

    /// Counts down by one. An open latch stays open, so a count is never undone.
    ///
    /// # Errors
    /// Returns an error if the input is invalid or the store keeps failing: it was not counted, or, with
    /// [`Error::Unknown`], it may have been. To be sure, use [`Latch::count_down_as`], which counts an owner
    /// once, and retry.
    ///
    /// # Cancel safety
    /// If the future is dropped, it may have been counted or not.
    pub async fn count_down(&self) -> Result<(), Error> {
        self.arrive(self.arrival()).await
    }

    /// Counts down by one, and only once for this owner, however often it is called: for processes that may
    /// be restarted.
    ///
    /// # Errors
    /// As for [`Latch::count_down`].
    ///
    /// # Cancel safety
    /// As for [`Latch::count_down`].
    pub async fn count_down_as(&self, owner: Owner) -> Result<(), Error> {
        self.arrive(self.arrival().owner(owner)).await
    }

    /// Waits until the latch is open.
    ///
    /// # Errors
    /// Returns an error if the input is invalid or the store keeps failing.
    ///
    /// # Cancel safety
    /// This method is cancel safe: it leaves the queue.
    pub async fn wait(&self) -> Result<(), Error> {
        self.wait_with(Wait::forever()).await
    }

    /// Waits for at most `time`.
    ///
    /// # Errors
    /// Returns [`Error::TimedOut`] after `time`, or an error as [`Latch::wait`] does.
    ///
    /// # Cancel safety
    /// As for [`Latch::wait`].
    pub async fn wait_within(&self, time: Duration) -> Result<(), Error> {
        self.wait_with(Wait::within(time)).await
    }

    /// Returns how many times it must still be counted down.
    ///
    /// # Errors
    /// As for [`Lock::inspect`].
    pub async fn count(&self) -> Result<u32, Error> {
        let info = self.inspect().await?;
        if !self.lock.tenure().features().has_limits {
            // The number that is left is all that is stored.
            return Ok(info.limit);
        }
        let holders = info.holders;
        let counted: u32 = holders.iter().map(|holder| holder.permits).sum();
        Ok(self.count.saturating_sub(counted))
    }

    /// Returns the owners that have counted down, and the waiters.
    ///
    /// # Errors
    /// As for [`Lock::inspect`].
    pub async fn inspect(&self) -> Result<LockInfo, Error> {
        self.lock.inspect().await
    }

    /// Returns the same latch for code that is not async.
    pub fn blocking(self) -> crate::blocking::Latch {
        crate::blocking::Latch::new(self)
    }

    fn arrival(&self) -> Lock {
        self.lock.clone().with_shape(Shape::new(Kind::Latch, self.count, 1))
    }

    async fn arrive(&self, arrival: Lock) -> Result<(), Error> {
        // An arrival is always granted, so it never waits for others; but `acquire` retries after errors
        // (I5), so that a lost answer does not undo it. Its hold stays until its lease ends.
        arrival.acquire().await?.forget();
        Ok(())
    }

    async fn wait_with(&self, wait: Wait) -> Result<(), Error> {
        // A waiter that passes the latch holds nothing.
        self.lock.acquire_with(wait).await?.forget();
        Ok(())
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Latch").field(&self.lock).finish()
    }
}
