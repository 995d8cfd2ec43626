//! A barrier.

use std::fmt;
use std::time::Duration;

use crate::error::Error;
use crate::info::LockInfo;
use crate::lock::Lock;
use crate::wait::Wait;

/// A barrier at which a number of parties wait for each other: each waits until all have arrived. Then it
/// can be used again.
///
/// A party that gives up is counted until its cancellation reaches the store, and a party that crashes for
/// at most 15 seconds; the others then wait for another party.
///
/// # Examples
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
        Self { lock: lock.without_fallback() }
    }

    /// Sets the note that is shown while this party waits.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.lock = self.lock.note(note);
        self
    }

    /// Waits until all parties have arrived.
    ///
    /// # Errors
    /// Returns an error if the input is invalid or the store keeps failing.
    ///
    /// # Cancel safety
    /// If the future is dropped, the party leaves, unless the barrier has opened. It leaves before any party
    /// that this client sends later arrives; parties of other clients see it leave after one trip to the
    /// store.
    pub async fn wait(&self) -> Result<(), Error> {
        self.wait_with(Wait::forever()).await
    }

    /// Waits for at most `time`. A barrier that opens right at the end may have counted a party for which
    /// this returned [`Error::TimedOut`].
    ///
    /// # Errors
    /// Returns [`Error::TimedOut`] after `time`, or an error as [`Barrier::wait`] does.
    ///
    /// # Cancel safety
    /// As for [`Barrier::wait`].
    pub async fn wait_within(&self, time: Duration) -> Result<(), Error> {
        self.wait_with(Wait::within(time)).await
    }

    /// Returns the parties that wait.
    ///
    /// # Errors
    /// As for [`Lock::inspect`].
    pub async fn inspect(&self) -> Result<LockInfo, Error> {
        self.lock.inspect().await
    }

    /// Returns the same barrier for code that is not async.
    pub fn blocking(self) -> crate::blocking::Barrier {
        crate::blocking::Barrier::new(self)
    }

    async fn wait_with(&self, wait: Wait) -> Result<(), Error> {
        // The hold only answers a retry of the same party: the barrier has opened.
        self.lock.acquire_with(wait).await.map(drop)
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Barrier").field(&self.lock).finish()
    }
}
