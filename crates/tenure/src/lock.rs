//! A lock by its name, and how it is to be held.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Tenure;
use crate::core::lease::Lease;
use crate::core::name::LockName;
use crate::core::shape::Shape;
use crate::driver::{Identity, Spec};
use crate::engine::ForceOutcome;
use crate::error::{Error, Invalid};
use crate::guard::Guard;
use crate::info::{About, LockInfo};
use crate::owner::Owner;
use crate::wait::Wait;

/// A lock by its name, and how it is to be held. Making one costs nothing in the store; it can be
/// cloned and used again.
///
/// Bad input (an empty name, a lease of zero) is reported by the first use.
///
/// ```
/// use std::time::Duration;
/// # tenure::blocking::block_on(async {
/// let tenure = tenure::Tenure::connect("memory:").await?;
/// let lock = tenure.lock("reports/nightly").lease(Duration::from_secs(10)).note("run 7");
///
/// let guard = lock.acquire_within(Duration::from_secs(5)).await?;
/// assert!(lock.try_acquire().await?.is_none());
/// drop(guard);
/// # Ok::<(), tenure::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Lock {
    tenure: Tenure,
    spec: Result<Arc<Spec>, Invalid>,
}

impl Lock {
    pub(crate) fn new(tenure: Tenure, spec: Result<Spec, Invalid>) -> Self {
        Self { tenure, spec: spec.map(Arc::new) }
    }

    /// The lease, kept up by the watchdog: it is renewed every third of this, for as long as the
    /// guard lives. If the process dies, the lock is free after this time at the latest.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        self.with_lease(lease, true)
    }

    /// A lease that is not renewed: the lock is held for this long at most, whatever happens.
    #[must_use]
    pub fn fixed_lease(self, lease: Duration) -> Self {
        self.with_lease(lease, false)
    }

    /// Keeps the lock for at least this long, counted from the acquire, even if it is released
    /// earlier. For jobs on machines whose clocks differ: the slower clock then finds it taken.
    #[must_use]
    pub fn at_least(self, time: Duration) -> Self {
        self.change(|spec| {
            let most = Lease::MAX.duration();
            if time > most {
                return Err(Invalid::new(format!(
                    "the least holding time may be up to 24 h, not {time:?}"
                )));
            }
            // At most 24 h, which fits.
            spec.at_least = time.as_millis() as u32;
            Ok(())
        })
    }

    /// What others should know: shown wherever the lock's holder is shown.
    #[must_use]
    pub fn note(self, note: impl Into<String>) -> Self {
        let note = note.into();
        self.change(|spec| {
            let note = About::checked_note("a note", &note)?;
            let about = About { note: Some(note), ..(*spec.about).clone() };
            spec.about = Arc::new(about);
            Ok(())
        })
    }

    /// Strictly first come, first served: turns off the local hand-over by which tasks of one
    /// process may pass the lock among themselves for a bounded while.
    #[must_use]
    pub fn fair(self) -> Self {
        self.change(|spec| {
            spec.is_fair = true;
            Ok(())
        })
    }

    /// Re-entrant: the owner of the surrounding [`Owner::scope`] may acquire the lock again while
    /// it holds it. The lock is free when every guard is gone. In the blocking API the calling
    /// thread is the owner.
    #[must_use]
    pub fn reentrant(self) -> Self {
        self.change(|spec| {
            spec.identity = Identity::Current { count_locally: false };
            Ok(())
        })
    }

    /// Re-entrant under this owner, which may come from another task, thread or process.
    #[must_use]
    pub fn owner(self, owner: Owner) -> Self {
        self.change(|spec| {
            spec.identity = Identity::Given { owner, count_locally: false };
            Ok(())
        })
    }

    /// Counts re-entries in this process instead of the store: the second and later entries cost
    /// no trip. Makes the lock re-entrant if it is not.
    #[must_use]
    pub fn count_locally(self) -> Self {
        self.change(|spec| {
            spec.identity = match spec.identity {
                Identity::Given { owner, .. } => Identity::Given { owner, count_locally: true },
                _ => Identity::Current { count_locally: true },
            };
            Ok(())
        })
    }

    /// One attempt: the guard, or none if others hold the lock or wait for it.
    ///
    /// # Errors
    /// Bad input, or trouble with the store. Another holder is no error.
    ///
    /// # Cancel safety
    /// Dropped at any moment, it leaves nothing behind: what was granted is released.
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.tenure.try_acquire(&self.spec()?).await
    }

    /// Waits until the lock is acquired.
    ///
    /// # Errors
    /// Bad input, or trouble with the store that lasts.
    ///
    /// # Cancel safety
    /// Dropped at any moment, it leaves nothing behind: it leaves the queue, and what was granted
    /// is released.
    pub async fn acquire(&self) -> Result<Guard, Error> {
        self.acquire_with(Wait::forever()).await
    }

    /// Waits for this time at most.
    ///
    /// # Errors
    /// [`Error::TimedOut`], bad input, or trouble with the store that lasts.
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn acquire_within(&self, time: Duration) -> Result<Guard, Error> {
        self.acquire_with(Wait::within(time)).await
    }

    /// Waits as told.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Busy`] after the last attempt, bad input, or trouble with the
    /// store that lasts.
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn acquire_with(&self, wait: Wait) -> Result<Guard, Error> {
        self.tenure.acquire(&self.spec()?, &wait).await
    }

    /// Who holds the lock and who waits for it.
    ///
    /// # Errors
    /// Bad input, or trouble with the store.
    pub async fn inspect(&self) -> Result<LockInfo, Error> {
        self.tenure.inspect(self.name()?).await
    }

    /// Takes the lock away from whoever holds it, and leaves a record of it. The holder is told;
    /// its fence is overtaken.
    ///
    /// # Errors
    /// Bad input, or trouble with the store.
    pub async fn force_release(&self, reason: &str) -> Result<ForceOutcome, Error> {
        self.tenure.force_release(self.name()?, None, reason).await
    }

    /// The same lock for code that is not async.
    pub fn blocking(self) -> crate::blocking::Lock {
        crate::blocking::Lock::new(self)
    }

    pub(crate) fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// The same wish for another part of the lock.
    pub(crate) fn with_shape(self, shape: Result<Shape, Invalid>) -> Self {
        self.change(|spec| {
            spec.shape = shape?;
            Ok(())
        })
    }

    /// Re-entrant inside [`Owner::scope`].
    pub(crate) fn scoped(self) -> Self {
        self.change(|spec| {
            spec.identity = Identity::Scope;
            Ok(())
        })
    }

    fn name(&self) -> Result<LockName, Error> {
        Ok(self.spec()?.name.clone())
    }

    pub(crate) fn spec(&self) -> Result<Arc<Spec>, Error> {
        self.spec.clone().map_err(Error::Invalid)
    }

    fn with_lease(self, lease: Duration, is_watched: bool) -> Self {
        self.change(|spec| {
            spec.lease = Lease::new(lease)?;
            spec.is_watched = is_watched;
            Ok(())
        })
    }

    /// Changes the wish; the first thing that is wrong with it stays.
    fn change(mut self, change: impl FnOnce(&mut Spec) -> Result<(), Invalid>) -> Self {
        if let Ok(spec) = &mut self.spec
            && let Err(invalid) = change(Arc::make_mut(spec))
        {
            self.spec = Err(invalid);
        }
        self
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lock").field(&self.spec).finish()
    }
}

/// The wishes that a lock of another kind passes on to the locks that it is made of.
macro_rules! forward_options {
    ($($lock:ident),+) => {
        /// The lease, kept up by the watchdog, as for [`Lock::lease`].
        #[must_use]
        pub fn lease(mut self, lease: Duration) -> Self {
            $(self.$lock = self.$lock.lease(lease);)+
            self
        }

        /// A lease that is not renewed, as for [`Lock::fixed_lease`].
        #[must_use]
        pub fn fixed_lease(mut self, lease: Duration) -> Self {
            $(self.$lock = self.$lock.fixed_lease(lease);)+
            self
        }

        /// Strictly first come, first served, as for [`Lock::fair`].
        #[must_use]
        pub fn fair(mut self) -> Self {
            $(self.$lock = self.$lock.fair();)+
            self
        }

        /// What others should know, as for [`Lock::note`].
        #[must_use]
        pub fn note(mut self, note: &str) -> Self {
            $(self.$lock = self.$lock.note(note);)+
            self
        }

        /// Re-entrant under this owner, as for [`Lock::owner`].
        #[must_use]
        pub fn owner(mut self, owner: Owner) -> Self {
            $(self.$lock = self.$lock.owner(owner);)+
            self
        }
    };
}
pub(crate) use forward_options;
