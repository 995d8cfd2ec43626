//! A barrier.

use std::fmt;
use std::time::Duration;

use crate::error::Error;
use crate::info::LockInfo;
use crate::lock::Lock;
use crate::wait::Wait;

/// Lets so many parties go on together: each waits until all are there. Then it can be used again.
///
/// A party that gives up is not counted any more as soon as the store has heard of it, and one that
/// crashes not for longer than 15 seconds; the others wait for another.
///
/// ```
/// # tenure::blocking::block_on(async {
/// let tenure = tenure::Tenure::connect("memory:").await?;
/// let start = tenure.barrier("race/start", 2);
///
/// let other = std::thread::spawn({
///     let start = start.clone().blocking();
///     move || start.wait()
/// });
/// start.wait().await?; // both are here
/// # other.join().unwrap()?;
/// # Ok::<(), tenure::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Barrier {
    lock: Lock,
}

impl Barrier {
    pub(crate) fn new(lock: Lock) -> Self {
        Self { lock }
    }

    /// What others should know: shown while this party waits.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.lock = self.lock.note(note);
        self
    }

    /// Waits until all parties are there.
    ///
    /// # Errors
    /// Bad input, or trouble with the store that lasts.
    ///
    /// # Cancel safety
    /// Dropped at any moment, the party leaves, unless the barrier has opened: before any party that this
    /// client sends after it arrives, and before those of others as soon as the store has heard of it,
    /// which takes one trip.
    pub async fn wait(&self) -> Result<(), Error> {
        self.wait_with(Wait::forever()).await
    }

    /// Waits for this time at most. A barrier that opens at the very end may have counted a party
    /// that was told it timed out.
    ///
    /// # Errors
    /// [`Error::TimedOut`], bad input, or trouble with the store that lasts.
    ///
    /// # Cancel safety
    /// As for [`Barrier::wait`].
    pub async fn wait_within(&self, time: Duration) -> Result<(), Error> {
        self.wait_with(Wait::within(time)).await
    }

    /// Who waits.
    ///
    /// # Errors
    /// As for [`Lock::inspect`].
    pub async fn inspect(&self) -> Result<LockInfo, Error> {
        self.lock.inspect().await
    }

    /// The same for code that is not async.
    pub fn blocking(self) -> crate::blocking::Barrier {
        crate::blocking::Barrier::new(self)
    }

    async fn wait_with(&self, wait: Wait) -> Result<(), Error> {
        // The hold only tells one who asks again that the barrier has opened.
        self.lock.acquire_with(wait).await.map(drop)
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Barrier").field(&self.lock).finish()
    }
}
