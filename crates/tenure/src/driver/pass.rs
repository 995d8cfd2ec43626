//! Local hand-over: a lock passes from task to task within the process, without a trip to the
//! store, each holder with a fence of its own out of the range that the grant reserved.
//!
//! [`PASSES`] and [`PASS_TIME`] bound that, so that those who wait in the store's queue are not
//! kept waiting (I10). The line keeps its own place in that queue meanwhile.

use std::sync::Arc;
use std::time::Duration;

use super::Driver;
use super::held::{Held, Renewing, Terms};
use crate::core::moment::Moment;
use crate::guard::Guard;
use crate::sync::lock;

/// How often a lock may pass from task to task before it goes back to the store: enough to make
/// trips to the store rare, and still a short wait for anyone who stands there.
pub(crate) const PASSES: u16 = 32;

/// For how long it may do so, however short the sections are.
pub(crate) const PASS_TIME: Duration = Duration::from_millis(50);

impl Driver {
    /// Passes a lock that is being released to the next task here, if the bounds allow it.
    pub(super) fn pass_on(self: &Arc<Self>, held: &Held, now: Moment) -> bool {
        if !may_pass(held, now) {
            return false;
        }
        let lines = lock(&self.lines);
        let Some((id, line)) = lines.shared(&held.name) else {
            return false;
        };
        if !line.spec.agrees_with(held.lease, &held.about) {
            return false;
        }
        drop(lines);
        let unwanted = self.give(id, self.successor(held, now));
        let is_passed = unwanted.is_none();
        if let Some(guard) = unwanted {
            // Nobody was left. The caller releases the hold, which is still the same.
            self.finish(&guard.into_held());
        }
        let closed = lock(&self.lines).close_if_empty(id);
        self.clear(closed);
        is_passed
    }

    /// The next holder's guard: the same hold, with the next fence.
    fn successor(self: &Arc<Self>, held: &Held, now: Moment) -> Guard {
        let deadline = held.deadline();
        let terms = Terms {
            name: held.name.clone(),
            entry: held.entry,
            fence: held.fence.next(),
            about: held.about.clone(),
            since: now,
            process_since: held.process_since,
            lease: held.lease,
            at_least: 0,
            passes: held.passes - 1,
            deadline,
            renewing: Renewing::Always,
        };
        // As due as it was: two thirds of the lease before its end.
        let renew_at = deadline.before(held.lease.renew_every() * 2);
        self.guard(terms, renew_at.max(now))
    }
}

/// Only with a reserved fence left, within the time, and with enough of the lease left for the
/// next holder to work in while its renewal is on the way.
fn may_pass(held: &Held, now: Moment) -> bool {
    held.passes > 0
        && now.since(held.process_since) < PASS_TIME
        && held.deadline().since(now) > held.lease.duration() / 2
}
