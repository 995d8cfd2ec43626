//! The watchdog: renews the locks that this process holds, and detects in time when one is lost (I9).
//!
//! The agenda has the next alarm of every hold: its renewal, at a third of the lease or of the remaining
//! lease, or the end of the lease by this process's conservative estimate. Renewals that are due together
//! go to the engine in one call.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::Driver;
use super::held::{Held, Renewing};
use crate::clock;
use crate::core::lease;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::engine::{Answer, Engine, Renewal, Renewed, Replicas};
use crate::error::{Error, Lost, StoreError, WhyLost};
use crate::events::EventKind;
use crate::owner::Owner;
use crate::telemetry::{self, spans};

/// Between two attempts to renew a hold that is nearly over; or a round trip, if that is longer.
const RETRY_AT_LEAST: Duration = Duration::from_millis(10);

/// How many renewals go to the engine in one call. One call must not block the store for other clients.
const BATCH: usize = 256;

/// The outcome of each renewal of a call.
type Outcomes = Vec<Result<Renewed, StoreError>>;

impl Driver {
    /// Handles held locks whose alarm has come due.
    pub(super) fn tend(self: &Arc<Self>, due: Vec<Arc<Held>>, now: Moment) {
        let mut batch = Vec::new();
        for held in due {
            if held.becomes_long(now, self.settings.warn_held_after) {
                let (fence, note) = (held.fence(held.turn()), held.about.note.as_deref());
                telemetry::held_long(&held.name, fence, note, now.since(held.since()));
            }
            if now >= held.deadline() {
                self.lose(&held, WhyLost::LeaseEnded, false);
            } else if held.renewing() == Renewing::Never {
                self.agenda.arm(&held, held.deadline());
            } else {
                // Without an answer, the renewal is retried a little later, and the lock is lost at the deadline.
                let next = now + retry_after(&held, now, self.engine.round_trip());
                self.agenda.arm(&held, next.min(held.deadline()));
                batch.push(held);
            }
        }
        // Those of one server together: a server that does not answer must not delay the answers of others. Nor must
        // replicas delay renewals that do not wait for them.
        let mut alike: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for held in batch {
            let key = (self.engine.server_of(&held.name, held.entry), held.replicas_of_renewals());
            alike.entry(key).or_default().push(held);
        }
        for ((_, replicas), mut batch) in alike {
            while !batch.is_empty() {
                let rest = batch.split_off(batch.len().min(BATCH));
                self.renew_all(std::mem::replace(&mut batch, rest), replicas);
            }
        }
    }

    fn renew_all(self: &Arc<Self>, batch: Vec<Arc<Held>>, replicas: Option<Replicas>) {
        let renewals = batch.iter().map(renewal).collect();
        let sent = clock::now();
        let span = spans::renew(batch.len(), &self.engine);
        match self.send_renewals(renewals, replicas).into_now() {
            Ok(result) => self.renewed(&batch, sent, result),
            Err(later) => {
                let driver = self.clone();
                self.spawn(async move {
                    let result = span.run(pin!(later)).await;
                    driver.renewed(&batch, sent, result);
                });
            }
        }
    }

    fn send_renewals(
        &self,
        renewals: Vec<Renewal>,
        replicas: Option<Replicas>,
    ) -> Answer<Outcomes> {
        match replicas {
            Some(replicas) => self.engine.renew_replicated(renewals, replicas),
            None => self.engine.renew(renewals),
        }
    }

    /// Where a renewal failed, the old deadline stands, and the alarm for the retry is set.
    fn renewed(&self, batch: &[Arc<Held>], sent: Moment, result: Result<Outcomes, StoreError>) {
        let outcomes = match result {
            Ok(outcomes) => {
                telemetry::round_trip(clock::now().since(sent));
                outcomes
            }
            Err(error) => return telemetry::renewal_failed(batch.len(), &error),
        };
        for (held, outcome) in batch.iter().zip(outcomes) {
            match outcome {
                Ok(outcome) => self.apply(held, sent, outcome),
                Err(error) => telemetry::renewal_of_one_failed(&held.name, &error),
            }
        }
    }

    pub(super) fn apply(&self, held: &Arc<Held>, sent: Moment, outcome: Renewed) {
        match outcome {
            // `is_lost` may have returned true in the meantime, and lost is final.
            Renewed::Extended if held.lost(clock::now()).is_some() => {
                self.lose(held, WhyLost::LeaseEnded, false);
            }
            Renewed::Extended => {
                let (before, now) = (held.deadline(), clock::now());
                held.extend(lease::deadline(sent, held.lease.duration()));
                if held.renewing() == Renewing::Once {
                    held.set_renewing(Renewing::Never);
                }
                let (lease, deadline) = (held.lease.duration(), held.deadline());
                let next = match held.renewing() {
                    Renewing::Never => deadline,
                    _ => next_renewal(sent, clock::now(), lease, deadline),
                };
                self.agenda.arm(held, next);
                // Last: it calls foreign code.
                report_slack(held, before, now);
            }
            Renewed::NotHeld => self.lose(held, WhyLost::NotHeld, false),
            // A server that takes over may not know of it, so it does not count.
            Renewed::Unreplicated { replicas } => {
                telemetry::renewal_unreplicated(&held.name, replicas);
            }
        }
    }

    /// Renews one lock now, and returns the outcome.
    pub(crate) async fn renew(self: &Arc<Self>, held: &Arc<Held>) -> Result<(), Error> {
        self.check_process()?;
        if let Some(lost) = held.lost(clock::now()) {
            return Err(lost.into());
        }
        let sent = clock::now();
        let failed = |error| Error::from_store(&held.name, "renew", error);
        let replicas = held.replicas_of_renewals();
        let outcome = self.renew_one(renewal(held), replicas).await.map_err(failed)?;
        self.apply(held, sent, outcome);
        if let (Renewed::Unreplicated { replicas: count }, Some(replicas)) = (outcome, replicas) {
            return Err(Error::unreplicated(&held.name, "renew", count, replicas));
        }
        held.lost(clock::now()).map_or(Ok(()), |lost| Err(lost.into()))
    }

    /// One renewal in a call of its own.
    pub(crate) async fn renew_one(
        &self,
        renewal: Renewal,
        replicas: Option<Replicas>,
    ) -> Result<Renewed, StoreError> {
        let outcome = self.send_renewals(vec![renewal], replicas).await?.pop();
        outcome.unwrap_or_else(|| {
            Err(StoreError::unknown("the store returned no answer to a renewal"))
        })
    }

    /// The store reports that an owner's lock was taken away.
    pub(super) fn taken_away(&self, name: &LockName, owner: Owner) {
        for held in self.agenda.holds_lost(name, owner) {
            self.lose(&held, WhyLost::NotHeld, true);
        }
    }

    /// The lock is lost; perhaps because an operator took it away by force.
    pub(super) fn lose(&self, held: &Arc<Held>, why: WhyLost, is_forced: bool) {
        if !self.agenda.lose(held, why) {
            return;
        }
        // First: the holder must stop, and the rest may take a while (I9).
        held.announce();
        let (turn, lost) = (held.turn(), Lost { name: held.name.clone(), why });
        let note = held.about.note.as_deref();
        telemetry::holding(held.group, self.fallback().is_some(), -1.0);
        telemetry::lost(&lost, held.fence(turn), note, held.group, is_forced);
        held.report(turn, if is_forced { EventKind::Forced } else { EventKind::Lost { why } });
    }
}

pub(super) fn renewal(held: &Arc<Held>) -> Renewal {
    Renewal { name: held.name.clone(), entry: held.entry, lease: held.lease, commit: None }
}

/// Reports how much of the lease was left when its renewal was confirmed: it would have ended at `deadline`. A third of the lease passes before the first
/// attempt; another third without an answer is late.
fn report_slack(held: &Held, deadline: Moment, now: Moment) {
    let (lease, left) = (held.lease.duration(), deadline.since(now));
    telemetry::renewed(held.group, left);
    // A hand-over begins with a claim lease, which is shorter.
    let is_claim = held.was_handed_over() && deadline.since(held.process_since) < lease / 2;
    if left < lease / 3 && !is_claim {
        let turn = held.turn();
        telemetry::renewed_late(&held.name, held.fence(turn), left, lease);
        held.report(turn, EventKind::RenewedLate { left });
    }
}

/// When to renew a lease whose last confirmation was sent at `since`: after a third of it, but no later
/// than after a third of the remaining time, because a slow answer or a claim lease leaves less of it.
pub(super) fn next_renewal(
    since: Moment,
    now: Moment,
    lease: Duration,
    deadline: Moment,
) -> Moment {
    let left = deadline.since(now);
    (since + lease / 3).min(now + left / 3)
}

/// Soon enough for several attempts before the hold ends. The remaining time counts, because a lock that
/// was handed over is held for less than its lease at first.
fn retry_after(held: &Held, now: Moment, round_trip: Duration) -> Duration {
    let left = held.deadline().since(now);
    // Within one round trip, the last attempt cannot be known to have failed.
    let at_least = RETRY_AT_LEAST.max(round_trip);
    (held.lease.renew_every() / 4).max(round_trip).min((left / 4).max(at_least))
}
