//! Where holds begin, and where the driver's watch over them ends without a release.

use std::sync::Arc;

use super::held::{Held, Renewing, Terms};
use super::watchdog::next_renewal;
use super::{Driver, Spec};
use crate::clock;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::engine::{Engine, Grant};
use crate::error::{Error, WhyLost};
use crate::guard::Guard;
use crate::owner::{Entry, Owner};
use crate::telemetry;

impl Driver {
    /// Whether another owner than this one holds a lock here, with a valid lease.
    pub(crate) fn holds(&self, name: &LockName, but: Owner) -> bool {
        let now = clock::now();
        let is_match = |held: &Arc<Held>| held.name == *name && held.entry.owner != but;
        self.agenda.holds().iter().any(|held| is_match(held) && held.lost(now).is_none())
    }

    /// How many losses there were so far. To be read before the store is asked.
    pub(crate) fn losses(&self) -> u64 {
        self.agenda.losses()
    }

    /// The guard of a new grant, which the watchdog renews. `losses` was read before the
    /// store was asked.
    pub(crate) fn hold(
        self: &Arc<Self>,
        spec: &Spec,
        entry: Entry,
        grant: Grant,
        deadline: Moment,
        losses: u64,
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
            // A claim lease is confirmed in time; a critical section that ends before costs no renewal.
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
            group: spec.group,
            // An immediate grant has the whole lease.
            was_handed_over: !is_claimed,
            deadline,
            renewing,
            replication: spec.replication().filter(|_| self.fallback().is_none()),
        };
        let held = Arc::new(Held::new(self.clone(), terms));
        self.agenda.arm(&held, first_alarm);
        telemetry::holding(held.group, self.fallback().is_some(), 1.0);
        if self.losses() != losses {
            // It may have been taken away before the agenda had it: only the store knows.
            self.doubt(&held);
        }
        if self.has_ended() {
            self.lose(&held, WhyLost::Ended, false);
        }
        Guard::of_turn(held, 0)
    }

    /// Renews a hold now, on the driver's thread, so that the caller does not wait for it.
    fn doubt(&self, held: &Arc<Held>) {
        if held.renewing() == Renewing::Never {
            held.set_renewing(Renewing::Once);
        }
        self.agenda.arm(held, clock::now());
    }

    /// The entry of a hold that is about to be detached, as other clients can end it.
    pub(crate) async fn entry_to_detach(&self, held: &Arc<Held>) -> Result<Entry, Error> {
        let entry = self.engine.entry_to_detach(&held.name, held.entry).await;
        entry.map_err(|error| Error::from_store(&held.name, "detach", error))
    }

    /// Ends the watch over a hold that continues elsewhere.
    pub(crate) fn detach(&self, held: &Arc<Held>) -> Result<(), Error> {
        // The store first: if it cannot keep the hold beyond this client, the hold stays watched.
        let detached = self.engine.detach(&held.name, held.entry);
        detached.map_err(|error| Error::from_store(&held.name, "detach", error))?;
        self.finish(held);
        Ok(())
    }

    /// Ends the watch over a hold that is left to its lease.
    pub(crate) fn forget(&self, held: &Arc<Held>) {
        if self.is_inherited() {
            return;
        }
        // On an error the store may end it earlier, which no caller relies on.
        let _ = self.engine.detach(&held.name, held.entry);
        self.finish(held);
    }

    /// Ends a hold here. False if it was lost or ended before.
    pub(super) fn finish(&self, held: &Arc<Held>) -> bool {
        let was_held = self.agenda.finish(held);
        if was_held {
            telemetry::holding(held.group, self.fallback().is_some(), -1.0);
        }
        was_held
    }
}

/// How many local hand-overs the fences of a grant allow.
fn passes(grant: Grant) -> u8 {
    u8::try_from(grant.fences.saturating_sub(1)).unwrap_or(u8::MAX)
}
