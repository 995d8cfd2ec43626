//! A lock's name and options.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Tenure;
use crate::core::lease::Lease;
use crate::core::name::LockName;
use crate::core::shape::Shape;
use crate::driver::{Identity, Replication, Spec};
use crate::engine::{ForceOutcome, Replicas};
use crate::error::{Error, Invalid};
use crate::group::Group;
use crate::guard::Guard;
use crate::info::{About, LockInfo};
use crate::owner::Owner;
use crate::wait::Wait;

/// A lock's name and options. Creating one sends nothing to the store; it can be cloned and reused.
///
/// Invalid input (an empty name, a lease of zero) is reported by the first use.
///
/// # Examples
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

    /// Sets the lease. The watchdog renews it every third of this time, for as long as the guard lives. If
    /// the process dies, the lock is free after this time at the latest.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        self.with_lease(lease, true)
    }

    /// Sets a lease that is not renewed: the lock is held for at most this time, whatever happens.
    #[must_use]
    pub fn fixed_lease(self, lease: Duration) -> Self {
        self.with_lease(lease, false)
    }

    /// Keeps the lock for at least this time from the acquire on, even if it is released earlier. For
    /// scheduled jobs on machines whose clocks differ: the machine with the slower clock finds it taken.
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

    /// Sets the note that is shown with the lock's holder.
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

    /// Sets the group under which metrics count this lock, as the label `group`: 1 to 64 letters, digits and characters of
    /// `_-./:`. A lock's name is never a label. A process has 64 groups at most; further ones are counted as `other`.
    #[must_use]
    pub fn group(self, name: &str) -> Self {
        self.change(|spec| {
            spec.group = Group::named(name)?;
            Ok(())
        })
    }

    /// Makes the lock strictly first come, first served: turns off the local hand-over, by which tasks of one
    /// process may pass the lock among themselves for a bounded time.
    #[must_use]
    pub fn fair(self) -> Self {
        self.change(|spec| {
            spec.is_fair = true;
            Ok(())
        })
    }

    /// Waits, after the lock is granted, until `count` replicas of the server have it, but for at most `within`: 1 to 100
    /// replicas, 1 ms to 60 s and less than the lease. A failover to one of them then does not lose the lock. If too few have
    /// it, the lock is released, and the acquire fails with [`Error::Unreplicated`].
    ///
    /// For a Redis or Valkey server with replicas, a master that Sentinels name, or a cluster, whose nodes each have their own
    /// replicas. Any other store refuses it. Renewals are not waited for: see [`Lock::wait_replicas_on_renewal`].
    ///
    /// A server that takes over without having been such a replica, or that has lost its data, does not know the lock; and
    /// until a failover is noticed, a client can be granted a lock by the old master. So fences are as necessary as without
    /// it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::{Error, Tenure};
    /// # tenure::blocking::block_on(async {
    /// # let url = "memory:";
    /// let tenure = Tenure::connect(url).await?;
    /// let lock = tenure.lock("orders/42").wait_replicas(1, Duration::from_millis(500));
    /// match lock.acquire().await {
    ///     Ok(guard) => println!("held, also by a replica, with fence {}", guard.fence()),
    ///     Err(Error::Unreplicated { replicas, .. }) => println!("{replicas} replicas, not held"),
    ///     Err(Error::Invalid(why)) => println!("{why}"), // of `memory:`, which has no replicas
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok::<(), tenure::Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn wait_replicas(self, count: u32, within: Duration) -> Self {
        self.with_replication(count, within, false)
    }

    /// Waits for replicas as [`Lock::wait_replicas`] does, also at each renewal. A renewal that too few of them have
    /// counts as failed: it is retried, and the lock is lost if none succeeds before the lease ends. Without this, a replica
    /// that takes over ends the lock at the end of the last lease that it knows of, or keeps it until the next renewal.
    #[must_use]
    pub fn wait_replicas_on_renewal(self, count: u32, within: Duration) -> Self {
        self.with_replication(count, within, true)
    }

    /// Makes the lock re-entrant: the owner of the surrounding [`Owner::scope`] may acquire the lock again
    /// while it holds it. The lock is free when every guard is dropped. In the blocking API the calling
    /// thread is the owner; an async acquire outside a scope is refused.
    ///
    /// On a quorum the client counts the entries: other clients see one, and a hold with several cannot be detached.
    #[must_use]
    pub fn reentrant(self) -> Self {
        self.change(|spec| {
            spec.identity = Identity::Current { count_locally: false };
            Ok(())
        })
    }

    /// Makes the lock re-entrant for this owner, which may come from another task, thread or process.
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

    /// Makes one attempt: returns the guard, or `None` if others hold the lock or wait for it.
    ///
    /// # Errors
    /// Returns an error if the input is invalid or the store fails. Another holder is no error.
    ///
    /// # Cancel safety
    /// This method is cancel safe: if the future is dropped, a grant is released.
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.tenure.try_acquire(&self.spec()?).await
    }

    /// Waits until the lock is acquired.
    ///
    /// # Errors
    /// Returns an error if the input is invalid or the store keeps failing.
    ///
    /// # Cancel safety
    /// This method is cancel safe: if the future is dropped, it leaves the queue, and a grant is released.
    pub async fn acquire(&self) -> Result<Guard, Error> {
        self.acquire_with(Wait::forever()).await
    }

    /// Waits for at most `time`.
    ///
    /// # Errors
    /// Returns [`Error::TimedOut`] after `time`, or an error as [`Lock::acquire`] does.
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn acquire_within(&self, time: Duration) -> Result<Guard, Error> {
        self.acquire_with(Wait::within(time)).await
    }

    /// Waits as `wait` says.
    ///
    /// # Errors
    /// Returns [`Error::TimedOut`] after the time, [`Error::Busy`] after the last attempt, or an error as
    /// [`Lock::acquire`] does.
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn acquire_with(&self, wait: Wait) -> Result<Guard, Error> {
        self.tenure.acquire(&self.spec()?, &wait).await
    }

    /// Returns the holders and waiters of the lock.
    ///
    /// # Errors
    /// Returns an error if the input is invalid or the store fails.
    pub async fn inspect(&self) -> Result<LockInfo, Error> {
        self.tenure.inspect(self.name()?).await
    }

    /// Takes the lock away from all holders, and keeps a record of it. The holders are notified, and their
    /// fences overtaken.
    ///
    /// # Errors
    /// Returns an error if the input is invalid or the store fails.
    pub async fn force_release(&self, reason: &str) -> Result<ForceOutcome, Error> {
        self.tenure.force_release(self.name()?, None, reason).await
    }

    /// Returns the same lock for code that is not async.
    pub fn blocking(self) -> crate::blocking::Lock {
        crate::blocking::Lock::new(self)
    }

    pub(crate) fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// The same options for another part of the lock.
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

    /// The fallback does not serve it.
    pub(crate) fn without_fallback(self) -> Self {
        self.change(|spec| {
            spec.falls_back = false;
            Ok(())
        })
    }

    pub(crate) fn spec(&self) -> Result<Arc<Spec>, Error> {
        let spec = self.spec.clone()?;
        spec.check()?;
        Ok(spec)
    }

    fn with_replication(self, count: u32, within: Duration, is_for_renewals: bool) -> Self {
        self.change(|spec| {
            let replicas = Replicas::new(count, within)?;
            spec.replication = Some(Replication { replicas, is_for_renewals });
            Ok(())
        })
    }

    fn with_lease(self, lease: Duration, is_watched: bool) -> Self {
        self.change(|spec| {
            spec.lease = Lease::new(lease)?;
            spec.is_watched = is_watched;
            Ok(())
        })
    }

    /// Changes the options; the first error is kept.
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

/// The options that a lock of another kind forwards to its underlying locks.
macro_rules! forward_options {
    ($($lock:ident),+) => {
        /// Sets the lease, which the watchdog renews, as [`Lock::lease`] does.
        #[must_use]
        pub fn lease(mut self, lease: Duration) -> Self {
            $(self.$lock = self.$lock.lease(lease);)+
            self
        }

        /// Sets a lease that is not renewed, as [`Lock::fixed_lease`] does.
        #[must_use]
        pub fn fixed_lease(mut self, lease: Duration) -> Self {
            $(self.$lock = self.$lock.fixed_lease(lease);)+
            self
        }

        /// Makes the lock strictly first come, first served, as [`Lock::fair`] does.
        #[must_use]
        pub fn fair(mut self) -> Self {
            $(self.$lock = self.$lock.fair();)+
            self
        }

        /// Waits for replicas after the grant, as [`Lock::wait_replicas`] does.
        #[must_use]
        pub fn wait_replicas(mut self, count: u32, within: Duration) -> Self {
            $(self.$lock = self.$lock.wait_replicas(count, within);)+
            self
        }

        /// Waits for replicas also at renewals, as [`Lock::wait_replicas_on_renewal`] does.
        #[must_use]
        pub fn wait_replicas_on_renewal(mut self, count: u32, within: Duration) -> Self {
            $(self.$lock = self.$lock.wait_replicas_on_renewal(count, within);)+
            self
        }

        /// Sets the group under which metrics count it, as [`Lock::group`] does.
        #[must_use]
        pub fn group(mut self, name: &str) -> Self {
            $(self.$lock = self.$lock.group(name);)+
            self
        }

        /// Sets the note, as [`Lock::note`] does.
        #[must_use]
        pub fn note(mut self, note: &str) -> Self {
            $(self.$lock = self.$lock.note(note);)+
            self
        }

        /// Makes the lock re-entrant for this owner, as [`Lock::owner`] does.
        #[must_use]
        pub fn owner(mut self, owner: Owner) -> Self {
            $(self.$lock = self.$lock.owner(owner);)+
            self
        }
    };
}
pub(crate) use forward_options;
