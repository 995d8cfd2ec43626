//! Holds without a guard: detached locks, and records of finished work.

use std::time::Duration;

use super::{Tenure, failed};
use crate::clock;
use crate::core::lease::{self, Lease};
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::core::replicas::Replicas;
use crate::engine::{Engine, Grant, ReleaseOutcome, ReleaseRequest, Renewal, Renewed};
use crate::error::{Error, Invalid, Lost, WhyLost};
use crate::guard::{Guard, Released};
use crate::handle::Handle;

/// How long a record may stay. All engines count it in 64 bits; a year is enough.
const LONGEST_RECORD: Duration = Duration::from_secs(366 * 24 * 3600);

impl Tenure {
    /// Extends the lease of a detached lock, by the length it was acquired with.
    ///
    /// # Errors
    /// Returns [`Error::Lost`] if it is not held any more, or an error if the store fails.
    pub async fn renew(&self, handle: &Handle) -> Result<(), Error> {
        self.renew_until(handle, handle.lease(), None).await.map(drop)
    }

    /// Extends the lease of a detached lock to this length from now on; a renewal never shortens it. A later
    /// [`Tenure::renew`] uses the length in the handle again.
    ///
    /// # Errors
    /// A lease that is too short or too long, or as for [`Tenure::renew`].
    pub async fn renew_for(&self, handle: &Handle, lease: Duration) -> Result<(), Error> {
        self.renew_until(handle, Lease::new(lease)?, None).await.map(drop)
    }

    /// Releases a detached lock.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub async fn release(&self, handle: &Handle) -> Result<Released, Error> {
        self.release_and_linger(handle, Duration::ZERO).await
    }

    /// Takes over a detached lock: renews it, and returns a guard whose lease the watchdog renews.
    ///
    /// # Errors
    /// Returns [`Error::Lost`] if it is not held any more, [`Error::Unreplicated`] if this client waits for replicas and too few
    /// have it (it stays detached), or an error if the store fails.
    pub async fn adopt(&self, handle: Handle) -> Result<Guard, Error> {
        let losses = self.client.driver.losses();
        let mut lock = self.lock(handle.name()).lease(handle.lease().duration());
        lock = lock.owner(handle.owner());
        let replicas = lock.spec()?.replication.map(|replication| replication.replicas);
        let deadline = self.renew_until(&handle, handle.lease(), replicas).await?;
        let grant = Grant {
            fence: handle.fence(),
            fences: 1,
            lease: handle.lease().duration(),
            at: Moment::ZERO,
        };
        let spec = lock.spec()?;
        Ok(self.client.driver.hold(&spec, handle.entry(), grant, deadline, losses))
    }

    /// Records under a name that something was done, such as a job that is to run once per month. The record stays
    /// for this time, up to 366 days, far beyond any lease and without a process. False if there is one already,
    /// which is left as it is.
    ///
    /// It is a semaphore of that name whose one permit was released and lingers:
    /// [`Lock::inspect`](crate::Lock::inspect) shows it, and [`Tenure::force_release`] deletes it. On a server the client behind it is described for 25 hours, if it
    /// was [left registered](Tenure::leave_registered).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # tenure::blocking::block_on(async {
    /// let tenure = tenure::Tenure::connect("memory:").await?;
    /// let month = Duration::from_secs(30 * 24 * 3600);
    /// assert!(tenure.record("invoices sent", month).await?);
    /// assert!(!tenure.record("invoices sent", month).await?, "it was done within the month");
    /// # Ok::<(), tenure::Error>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// Bad input, or an error of the store: then there may be a record or not.
    ///
    /// # Cancel safety
    /// Dropped, there may be a record or not.
    pub async fn record<N>(&self, name: N, time: Duration) -> Result<bool, Error>
    where
        N: TryInto<LockName>,
        N::Error: Into<Invalid>,
    {
        if time > LONGEST_RECORD {
            let sentence = format!("a record may be kept for up to 366 days, not {time:?}");
            return Err(Invalid::new(sentence).into());
        }
        // Not a mutex: the layout of its keys has room for a day.
        let record = self.semaphore(name, 1).permits(1);
        let Some(guard) = record.try_acquire().await? else { return Ok(false) };
        let handle = guard.detach().await?;
        match self.release_and_linger(&handle, time).await? {
            Released::AlreadyLost => {
                let name = handle.name().clone();
                Err(Lost { name, why: WhyLost::NotHeld }.into())
            }
            _ => Ok(true),
        }
    }

    async fn renew_until(
        &self,
        handle: &Handle,
        lease: Lease,
        replicas: Option<Replicas>,
    ) -> Result<Moment, Error> {
        self.client.driver.check()?;
        let (name, entry) = (handle.name().clone(), handle.entry());
        let sent = clock::now();
        let renewal = Renewal { name: name.clone(), entry, lease, commit: None };
        match (self.client.driver.renew_one(renewal, replicas).await, replicas) {
            (Ok(Renewed::Unreplicated { replicas }), Some(asked)) => {
                Err(Error::unreplicated(&name, "adopt", replicas, asked))
            }
            (Ok(Renewed::Extended | Renewed::Unreplicated { .. }), _) => {
                Ok(lease::deadline(sent, lease.duration()))
            }
            (Ok(Renewed::NotHeld), _) => Err(Lost { name, why: WhyLost::NotHeld }.into()),
            (Err(error), _) => Err(failed(&name, "renew", error)),
        }
    }

    async fn release_and_linger(
        &self,
        handle: &Handle,
        linger: Duration,
    ) -> Result<Released, Error> {
        self.client.driver.check()?;
        let (name, entry) = (handle.name().clone(), handle.entry());
        let request = ReleaseRequest { linger, ..ReleaseRequest::new(name, entry) };
        match self.client.driver.engine.release(request).await {
            Ok(ReleaseOutcome::Released { .. }) => Ok(Released::Now),
            Ok(ReleaseOutcome::NotHeld) => Ok(Released::AlreadyLost),
            Err(error) => Err(failed(handle.name(), "release", error)),
        }
    }
}
