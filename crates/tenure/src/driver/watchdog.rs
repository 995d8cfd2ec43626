//! The watchdog: renews what this process holds, and notices in time when it is lost (I9).
//!
//! One list holds the next alarm of every lock: its renewal, at a third of the lease or of what is left
//! of it, or the end of the lease by our own careful reckoning. Renewals that are due together go to the
//! engine in one call.

use std::sync::Arc;
use std::time::Duration;

use super::held::{Held, Renewing, Terms};
use super::{Driver, Spec};
use crate::clock;
use crate::core::lease;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::engine::{Engine, Grant, Renewal, Renewed};
use crate::error::{Error, Lost, StoreError, WhyLost};
use crate::guard::Guard;
use crate::owner::{Entry, Owner};
use crate::telemetry;

/// Between two attempts to renew a hold that is nearly over; or a round trip, if that is longer.
const RETRY_AT_LEAST: Duration = Duration::from_millis(10);

/// How many renewals go to the engine in one call. One call must not keep a store from others.
const BATCH: usize = 256;

/// What became of each renewal of a call.
type Outcomes = Vec<Result<Renewed, StoreError>>;

impl Driver {
    /// How many losses have matched no hold so far. To be read before the store is asked.
    pub(crate) fn strays(&self) -> u64 {
        self.agenda.unmatched_losses()
    }

    /// The guard of a new grant, with the watchdog on it. `strays` is from before the store was asked.
    pub(crate) fn hold(
        self: &Arc<Self>,
        spec: &Spec,
        entry: Entry,
        grant: Grant,
        deadline: Moment,
        strays: u64,
    ) -> Guard {
        let now = clock::now();
        let is_claimed = grant.lease >= spec.lease.duration();
        let renewing = match (spec.is_watched, is_claimed) {
            (true, _) => Renewing::Always,
            (false, false) => Renewing::Once,
            (false, true) => Renewing::Never,
        };
        let first_alarm = match renewing {
            Renewing::Never => deadline,
            // A claim lease is confirmed in time; a section that ends before costs no renewal.
            _ => next_renewal(now, now, grant.lease, deadline),
        };
        let terms = Terms {
            name: spec.name.clone(),
            entry,
            fence: grant.fence,
            about: spec.about.clone(),
            since: now,
            lease: spec.lease,
            at_least: spec.at_least,
            passes: if spec.is_shareable() { passes(grant) } else { 0 },
            // A grant on the spot has the whole lease at once.
            was_handed_over: !is_claimed,
            deadline,
            renewing,
        };
        let held = Arc::new(Held::new(self.clone(), terms));
        self.agenda.arm(&held, first_alarm);
        if self.strays() != strays {
            // It may have been taken away before it was here: only the store knows.
            self.doubt(&held);
        }
        if self.has_ended() {
            self.lose(&held, WhyLost::Ended);
        }
        Guard::of_turn(held, 0)
    }

    /// Has a hold renewed now, on the driver's thread: its caller is not to wait for that.
    fn doubt(&self, held: &Arc<Held>) {
        if held.renewing() == Renewing::Never {
            held.set_renewing(Renewing::Once);
        }
        self.agenda.arm(held, clock::now());
    }

    /// Looks after held locks whose alarm has gone off.
    pub(super) fn tend(self: &Arc<Self>, due: Vec<Arc<Held>>, now: Moment) {
        let mut batch = Vec::new();
        for held in due {
            if now >= held.deadline() {
                self.lose(&held, WhyLost::LeaseEnded);
            } else if held.renewing() == Renewing::Never {
                self.agenda.arm(&held, held.deadline());
            } else {
                // If no answer comes, again a little later, and lost at the deadline.
                let next = now + retry_after(&held, now, self.engine.round_trip());
                self.agenda.arm(&held, next.min(held.deadline()));
                batch.push(held);
            }
        }
        while !batch.is_empty() {
            let rest = batch.split_off(batch.len().min(BATCH));
            self.renew_all(std::mem::replace(&mut batch, rest));
        }
    }

    fn renew_all(self: &Arc<Self>, batch: Vec<Arc<Held>>) {
        let renewals = batch.iter().map(renewal).collect();
        let sent = clock::now();
        match self.engine.renew(renewals).into_now() {
            Ok(result) => self.renewed(&batch, sent, result),
            Err(later) => {
                let driver = self.clone();
                self.spawn(async move {
                    let result = later.await;
                    driver.renewed(&batch, sent, result);
                });
            }
        }
    }

    /// Where a renewal failed, the old deadline stands, and the alarm for another try is set.
    fn renewed(&self, batch: &[Arc<Held>], sent: Moment, result: Result<Outcomes, StoreError>) {
        let outcomes = match result {
            Ok(outcomes) => outcomes,
            Err(trouble) => return telemetry::renewal_failed(batch.len(), &trouble),
        };
        for (held, outcome) in batch.iter().zip(outcomes) {
            match outcome {
                Ok(outcome) => self.apply(held, sent, outcome),
                Err(trouble) => telemetry::renewal_of_one_failed(&held.name, &trouble),
            }
        }
    }

    fn apply(&self, held: &Arc<Held>, sent: Moment, outcome: Renewed) {
        match outcome {
            // Whoever asked in the meantime was told that it is lost, and lost is final.
            Renewed::Extended if held.lost(clock::now()).is_some() => {
                self.lose(held, WhyLost::LeaseEnded);
            }
            Renewed::Extended => {
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
                telemetry::renewed();
            }
            Renewed::NotHeld => self.lose(held, WhyLost::NotHeld),
        }
    }

    /// Renews one lock now, for a caller that wants to know.
    pub(crate) async fn renew(self: &Arc<Self>, held: &Arc<Held>) -> Result<(), Error> {
        self.check_process()?;
        if let Some(lost) = held.lost(clock::now()) {
            return Err(lost.into());
        }
        let sent = clock::now();
        let failed = |trouble| Error::from_store(&held.name, "renew", trouble);
        let outcome = self.renew_one(renewal(held)).await.map_err(failed)?;
        self.apply(held, sent, outcome);
        held.lost(clock::now()).map_or(Ok(()), |lost| Err(lost.into()))
    }

    /// One renewal in a call of its own.
    pub(crate) async fn renew_one(&self, renewal: Renewal) -> Result<Renewed, StoreError> {
        let outcome = self.engine.renew(vec![renewal]).await?.pop();
        outcome.unwrap_or_else(|| Err(StoreError::unknown("the store gave no answer to a renewal")))
    }

    /// The store says that an owner's lock was taken away.
    pub(super) fn taken_away(&self, name: &LockName, owner: Owner) {
        for held in self.agenda.holds_lost(name, owner) {
            self.lose(&held, WhyLost::NotHeld);
        }
    }

    pub(super) fn lose(&self, held: &Arc<Held>, why: WhyLost) {
        if !self.agenda.lose(held, why) {
            return;
        }
        held.announce();
        telemetry::lost(&Lost { name: held.name.clone(), why }, held.fence(held.turn()));
    }

    /// Ends the watch over a hold that goes on elsewhere.
    pub(crate) fn detach(&self, held: &Arc<Held>) -> Result<(), Error> {
        // First the store is told: a hold that it would end with this client stays guarded.
        let told = self.engine.detach(&held.name, held.entry.owner);
        told.map_err(|trouble| Error::from_store(&held.name, "detach", trouble))?;
        self.finish(held);
        Ok(())
    }

    /// Ends the watch over a hold that is left to its lease.
    pub(crate) fn forget(&self, held: &Arc<Held>) {
        if self.is_inherited() {
            return;
        }
        // Not told, the store may end it earlier, which nobody here relies on.
        let _ = self.engine.detach(&held.name, held.entry.owner);
        self.finish(held);
    }

    /// Ends the watch over a hold. False if it was lost, or ended before.
    pub(super) fn finish(&self, held: &Arc<Held>) -> bool {
        self.agenda.finish(held)
    }
}

/// How many local hand-overs the fences of a grant allow.
fn passes(grant: Grant) -> u8 {
    u8::try_from(grant.fences.saturating_sub(1)).unwrap_or(u8::MAX)
}

fn renewal(held: &Arc<Held>) -> Renewal {
    Renewal { name: held.name.clone(), owner: held.entry.owner, lease: held.lease }
}

/// When to renew a lease, of which the last confirmation was sent at `since`: after a third of it, but
/// no later than after a third of what is left, because an answer that was long on its way, or a lease
/// that was handed over, leaves less than it should.
fn next_renewal(since: Moment, now: Moment, lease: Duration, deadline: Moment) -> Moment {
    let left = deadline.since(now);
    (since + lease / 3).min(now + left / 3)
}

/// Soon enough to try several times before the hold ends: what is left of it counts, because a lock
/// that was handed over is held for less than its lease at first.
fn retry_after(held: &Held, now: Moment, round_trip: Duration) -> Duration {
    let left = held.deadline().since(now);
    // Sooner, it could not know that the last attempt was in vain.
    let at_least = RETRY_AT_LEAST.max(round_trip);
    (held.lease.renew_every() / 4).max(round_trip).min((left / 4).max(at_least))
}
