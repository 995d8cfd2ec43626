//! Whose client lives, and what ends with one that does not.

use crate::core::lock::LockState;
use crate::core::moment::Moment;
use crate::core::shape::Kind;
use crate::core::table::Route;
use crate::owner::Owner;

/// Marks the route of a hold that does not end with its client: it was detached, or entries of
/// several clients stand on it. It then lives by its lease, as on every other engine.
pub(super) const KEPT: Route = 1 << 31;

/// The client of a route, without the mark.
pub(super) const fn client_of(route: Route) -> Route {
    route & !KEPT
}

/// Ends the leases of holders, and the time of waiters, whose client is gone.
pub(super) fn end_the_gone(
    lock: &mut LockState,
    now: Moment,
    mut is_gone: impl FnMut(Route) -> bool,
) {
    let ended: Vec<Owner> = {
        let of_client = lock.holders.iter().filter(|it| it.route & KEPT == 0);
        // What lingers was released, and is to outlast its client; so is a count of a latch.
        let bound = of_client.filter(|it| !it.is_lingering() && lock.kind != Kind::Latch);
        bound.filter(|it| is_gone(it.route)).map(|it| it.owner).collect()
    };
    for owner in ended {
        lock.holders.set_until(owner, now);
    }
    let Some(queue) = &mut lock.queue else {
        return;
    };
    let mut has_ended = false;
    for waiter in queue.iter_mut().filter(|it| is_gone(client_of(it.route))) {
        waiter.alive_until = now;
        has_ended = true;
    }
    if has_ended {
        queue.bury_dead(now);
        lock.queue.take_if(|queue| queue.is_empty());
    }
}

/// From now on the owner's hold does not end with its client.
pub(super) fn keep(lock: &mut LockState, owner: Owner) {
    if let Some(holder) = lock.holders.find(owner) {
        let kept = holder.route | KEPT;
        lock.holders.set_route(owner, kept);
    }
}

/// The same, unless its client is this one.
pub(super) fn keep_unless(lock: &mut LockState, owner: Owner, client: Route) {
    let holder = lock.holders.find(owner);
    if holder.is_some_and(|holder| client_of(holder.route) != client) {
        keep(lock, owner);
    }
}

/// The other clients whose end may let one of this client's waiters go on: those who hold the
/// lock, and those who will before it.
pub(super) fn ahead_of(lock: &LockState, client: Route) -> Vec<Route> {
    // Those who wait at a latch or a barrier wait for others to come, not to go.
    if matches!(lock.kind, Kind::Latch | Kind::Barrier) {
        return Vec::new();
    }
    let waiters = lock.queue.iter().flat_map(|queue| queue.iter());
    let mut routes: Vec<_> = lock
        .holders
        .iter()
        .filter(|it| !it.is_lingering())
        .map(|it| it.route)
        .chain(waiters.map(|it| it.route))
        .filter(|&route| route & KEPT == 0 && route != client)
        .collect();
    routes.sort_unstable();
    routes.dedup();
    routes
}
