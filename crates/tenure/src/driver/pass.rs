//! Local hand-over: a lock passes from task to task within the process, without a trip to the
//! store, each holder with a fence of its own out of the range that the grant reserved.
//!
//! [`PASSES`] and [`PASS_TIME`] bound that, so that waiters of other processes do not starve (I10). The
//! wait group keeps its own entry in the store's queue meanwhile.

use std::sync::Arc;
use std::time::Duration;

use super::Driver;
use super::held::Held;
use crate::core::moment::Moment;
use crate::guard::Guard;

/// How often a lock may pass from task to task before it goes back to the store: enough to make
/// trips to the store rare, and still a short wait for other processes.
pub(crate) const PASSES: u8 = 64;

/// For how long it may do so, however short the critical sections are.
pub(crate) const PASS_TIME: Duration = Duration::from_millis(50);

/// How much of the lease must be left: a hand-over begins with a claim lease of seconds, which the
/// watchdog is already extending.
pub(super) const ENOUGH: Duration = Duration::from_secs(1);

impl Driver {
    /// Passes a lock that is being released to the next task of this process, if the bounds allow it. It
    /// stays the same hold, with the same lease and alarm; only its turn changes.
    pub(super) fn hand_over_locally(self: &Arc<Self>, held: &Arc<Held>, now: Moment) -> bool {
        if !may_pass(held, now) {
            return false;
        }
        let Some(id) = self.groups.successors(held) else { return false };
        let next = Guard::of_turn(held.clone(), held.next_turn(now));
        let unwanted = self.groups.give(id, next);
        let is_passed = unwanted.is_none();
        if let Some(guard) = unwanted {
            // No task was left; the caller releases the hold.
            guard.into_held();
        }
        let closed = self.groups.close_if_empty(id);
        self.clear(closed);
        is_passed
    }
}

/// Only if its replicas have confirmed it, where that is asked for: the next holder does not ask them again. Only with a reserved fence left, within the time, and with enough of the lease left for the
/// next holder to work in while its renewal is in flight.
fn may_pass(held: &Held, now: Moment) -> bool {
    let enough = ENOUGH.min(held.lease.duration() / 2);
    held.is_confirmed()
        && held.turn() < held.passes()
        && now.since(held.process_since) < PASS_TIME
        && held.deadline().since(now) > enough
}
