//! Confirmation: replicas of the server have a hold before its guard is given out, where that is asked for.
//!
//! A renewal by the new holder, which only an owner that holds the lock can make, is followed by a wait for the replicas:
//! one that has the renewal has the grant before it. The acquire itself stays where it is, so that the operations of
//! one name stay in order.
//!
//! A hold has to be confirmed once: a local hand-over passes on a confirmed one. A caller that leaves meanwhile drops its
//! guard, which releases the lock (I8).

use std::sync::Arc;
use std::time::Duration;

use super::watchdog::renewal;
use super::{AFTER_ERROR, Driver, Held, Spec};
use crate::clock;
use crate::core::moment::Moment;
use crate::engine::{Engine, Features, Renewed, Replicas};
use crate::error::{Error, Invalid, StoreError};
use crate::guard::Guard;

/// How much longer than its time an acquire waits for the answer about the replicas, and for the release if they were too
/// few: a server reports up to 100 ms late that its time is over.
const GRACE: Duration = Duration::from_millis(500);

impl Driver {
    /// Refuses what the engine does not have, also to wait for replicas. A fallback is not what was asked for in any case.
    pub(super) fn check_options(&self, spec: &Spec) -> Result<(), Error> {
        let capabilities = self.engine.capabilities();
        if capabilities.features != Features::ALL {
            spec.check_features(capabilities.features, capabilities.engine)?;
        }
        let is_asked = spec.replication().is_some() && self.fallback().is_none();
        if is_asked && !self.engine.capabilities().has_replicas {
            return Err(no_replicas(self.engine.capabilities().engine));
        }
        Ok(())
    }

    /// The guard of a new hold, once its replicas have confirmed it, if that is asked for; `end` is when the caller's time
    /// is over. Otherwise the lock is released.
    pub(crate) async fn confirm(
        self: &Arc<Self>,
        spec: &Spec,
        guard: Guard,
        end: Moment,
    ) -> Result<Guard, Error> {
        let Some(replication) = spec.replication().filter(|_| self.fallback().is_none()) else {
            return Ok(guard);
        };
        let replicas = replication.replicas;
        if guard.held().is_confirmed_by(replicas.count()) {
            return Ok(guard);
        }
        // Boxed: it must not make the futures of all other acquires larger.
        match Box::pin(self.replicate(guard.held(), replicas, end)).await {
            Ok(()) => Ok(guard),
            Err(error) => {
                let released = self.before(clock::now() + GRACE, guard.release());
                // Otherwise the release continues in the background.
                let is_released = matches!(Box::pin(released).await, Some(Ok(_)));
                Err(if is_released { error } else { error.with_effect_unknown() })
            }
        }
    }

    /// Asks the replicas, and retries after errors until they answer, or patience or the time is over.
    async fn replicate(
        self: &Arc<Self>,
        held: &Arc<Held>,
        replicas: Replicas,
        end: Moment,
    ) -> Result<(), Error> {
        let give_up = end.min(clock::now() + self.settings.patience);
        let mut delays = AFTER_ERROR.delays(clock::now().as_micros());
        loop {
            self.check()?;
            let (sent, returned) = (clock::now(), self.returned());
            let asked = replicas.at_most(end.since(sent));
            let answer = self.renew_one(renewal(held), Some(asked));
            match self.before(end + GRACE, answer).await.unwrap_or_else(too_late) {
                Ok(outcome) => return self.replicated(held, sent, outcome, asked),
                Err(error) => {
                    let next = clock::now() + delays.next();
                    if error.is_lasting() || next >= give_up {
                        return Err(Error::from_store(&held.name, "acquire", error));
                    }
                    self.pause(next, returned).await;
                }
            }
        }
    }

    fn replicated(
        &self,
        held: &Arc<Held>,
        sent: Moment,
        outcome: Renewed,
        asked: Replicas,
    ) -> Result<(), Error> {
        if let Renewed::Unreplicated { replicas } = outcome {
            return Err(Error::unreplicated(&held.name, "acquire", replicas, asked));
        }
        self.apply(held, sent, outcome);
        if let Some(lost) = held.lost(clock::now()) {
            return Err(lost.into());
        }
        held.set_confirmed_by(asked.count());
        Ok(())
    }
}

/// The error of a caller that waits for replicas that an engine does not have.
pub(crate) fn no_replicas(engine: &str) -> Error {
    let sentence = format!(
        "the {engine} store has no replicas to wait for: use a server, or do not ask for replicas"
    );
    Error::Invalid(Invalid::new(sentence))
}

fn too_late<T>() -> Result<T, StoreError> {
    Err(StoreError::unknown("the replicas did not confirm it within the time allowed"))
}
