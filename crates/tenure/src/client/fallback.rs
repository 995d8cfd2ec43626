//! What an acquire does when the store cannot be reached (R22).

use std::sync::Arc;
use std::time::Duration;

use super::{Client, PATIENCE};
use crate::clock;
use crate::core::moment::Moment;
use crate::core::shape::Kind;
use crate::driver::{Driver, Settings, Spec};
use crate::engine::{Engine, MemoryEngine};
use crate::error::{Error, Invalid};
use crate::guard::Guard;
use crate::owner::Owner;
use crate::sync::lock;
use crate::telemetry;
use crate::wait::Wait;

/// What to do when the store cannot be reached.
///
/// A lock of [`Fallback::Process`] or [`Fallback::Machine`] excludes fewer clients than one of the store, and is held beside
/// locks of the store that other clients may hold at the same time. [`Guard::is_degraded`](crate::Guard::is_degraded) and
/// [`Guard::fallback`](crate::Guard::fallback) report it, and so do [`Tenure::health`](crate::Tenure::health) and the metric
/// `tenure_fallbacks_total`. Choose it for work that two clients may do at once, if the alternative is not to do it. As soon as the
/// store can be reached again, locks are acquired there, a mutex once no other task of this client holds that of the fallback; a
/// task that waits for a lock of the fallback by then stays there until it gets that lock, or its time is over.
///
/// A store that answers with an error is reached, and is not replaced: it is full, refuses the login, or cannot read a lock.
/// Such an error is returned, as with [`Fallback::Fail`].
///
/// A lock of a fallback cannot be [detached](crate::Guard::detach). Latches, barriers and elections have no fallback: a count
/// that others never see would be reported as done, and there would be two leaders. With [`Fallback::Process`] and
/// [`Fallback::Machine`] they fail, as with [`Fallback::Fail`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fallback {
    /// Return the error: no work is done without the lock.
    #[default]
    Fail,
    /// Wait for the store for as long as the caller waits for the lock. An acquire that does not wait, or that counts its
    /// attempts, fails.
    Wait,
    /// Use a lock that excludes only the other tasks of this process that use the same client, as `memory:` does. A mutex also
    /// excludes those that still hold the store's own lock, and those that acquire it there while the mutex is held.
    Process,
    /// Use a lock that excludes only the processes of this user on this machine, as `local:` does. For Linux, with the feature
    /// `local`.
    Machine,
}

impl Fallback {
    /// Refuses what this system does not have.
    pub(super) fn check(self) -> Result<(), Error> {
        let is_there = cfg!(all(feature = "local", target_os = "linux"));
        if self == Self::Machine && !is_there {
            let why = "the fallback to this machine needs Linux and the feature `local`";
            return Err(Error::Invalid(Invalid::new(why)));
        }
        Ok(())
    }
}

/// How often a task that has a lock of the fallback checks whether the store's own has been released here, and the other way
/// round. An outage is rare, and such a hold in it, too.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Whether an error means that the store could not be reached. One that answers, and one that refuses this client until a
/// person changes something, may serve other clients.
fn is_out_of_reach(error: &Error) -> bool {
    match error {
        Error::Unreachable { error, .. } | Error::Unknown { error, .. } => {
            !error.is_answer() && !error.is_lasting()
        }
        _ => false,
    }
}

impl Client {
    /// Whether to wait for the store after this error; how long the caller has waited so far.
    pub(super) fn waits(&self, error: Option<&Error>, wait: &Wait, waited: Duration) -> bool {
        let is_transient = match error {
            Some(Error::Unreachable { error, .. } | Error::Unknown { error, .. }) => {
                !error.is_lasting()
            }
            _ => false,
        };
        let has_time = wait.attempts.is_none() && wait.within.is_none_or(|time| waited < time);
        self.fallback == Fallback::Wait && is_transient && has_time
    }

    /// The driver to use instead of the store's after this error, if there is one.
    pub(super) async fn fall_back(
        &self,
        spec: &Spec,
        error: Option<&Error>,
    ) -> Result<Option<Arc<Driver>>, Error> {
        let Some(error) = error.filter(|error| is_out_of_reach(error)) else { return Ok(None) };
        if !spec.falls_back || matches!(self.fallback, Fallback::Fail | Fallback::Wait) {
            return Ok(None);
        }
        telemetry::fell_back(&spec.name, self.fallback, error);
        if let Some(driver) = lock(&self.local).clone() {
            return Ok(Some(driver));
        }
        let engine = self.open().await?;
        let mut local = lock(&self.local);
        // Another task may have been faster.
        if local.is_none() {
            *local = Some(Driver::start(engine, self.settings_of_fallback())?);
        }
        Ok(local.clone())
    }

    /// A mutex of the fallback, once no other owner of this client holds the store's own; none if that takes too long.
    pub(super) async fn beside_the_store(
        &self,
        spec: &Spec,
        guard: Guard,
        until: Option<Moment>,
    ) -> Result<Option<Guard>, Error> {
        let owner = guard.owner();
        let is_taken = || spec.shape.kind() == Kind::Mutex && self.driver.holds(&spec.name, owner);
        while is_taken() {
            let next = clock::now() + LOOK_AGAIN;
            if until.is_some_and(|until| until < next) {
                return Ok(None);
            }
            self.driver.alarm(next).await;
            guard.ensure_held()?;
        }
        Ok(Some(guard))
    }

    /// Whether another owner of this client still holds the fallback's own mutex of this name.
    pub(super) fn is_beside_the_fallback(&self, spec: &Spec, owner: Owner) -> bool {
        let local = lock(&self.local).clone();
        spec.shape.kind() == Kind::Mutex && local.is_some_and(|it| it.holds(&spec.name, owner))
    }

    /// Waits until no other owner of this client holds the fallback's own mutex; false if that takes too long.
    pub(super) async fn without_the_fallback(
        &self,
        spec: &Spec,
        owner: Owner,
        until: Option<Moment>,
    ) -> bool {
        while self.is_beside_the_fallback(spec, owner) {
            let next = clock::now() + LOOK_AGAIN;
            if until.is_some_and(|until| until < next) {
                return false;
            }
            self.driver.alarm(next).await;
        }
        true
    }

    fn settings_of_fallback(&self) -> Settings {
        Settings {
            patience: PATIENCE,
            fallback: Some(self.fallback),
            ..self.driver.settings().clone()
        }
    }

    async fn open(&self) -> Result<Box<dyn Engine>, Error> {
        #[cfg(all(feature = "local", target_os = "linux"))]
        if self.fallback == Fallback::Machine {
            let open = || crate::engine::LocalEngine::connect("local:");
            let opening = crate::thread::compute("tenure-open", open);
            let opened = opening.await.map_err(|source| Error::Thread { source })??;
            return Ok(Box::new(opened));
        }
        Ok(Box::new(MemoryEngine::new()))
    }
}
