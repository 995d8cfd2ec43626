//! Whose client lives, and what ends with one that does not.

use crate::core::lock::LockState;
use crate::core::moment::Moment;
use crate::core::shape::Kind;
use crate::core::table::{Effects, Route, Table};
use crate::engine::Wakeup;
use crate::owner::{Entry, Owner};

/// Marks the route of a hold that does not end with its client: it was detached, or entries of
/// several clients stand on it. It then lives by its lease, as on every other engine.
pub(super) const KEPT: Route = 1 << 31;

/// Marks the route of a waiter that looks for its turn itself, so that nobody has to wake it.
pub(super) const AWAKE: Route = 1 << 30;

/// Clients have numbers below the marks.
pub(super) const MAX_CLIENT: Route = AWAKE - 1;

/// The client of a route, without the marks.
pub(super) const fn client_of(route: Route) -> Route {
    route & MAX_CLIENT
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
        .filter(|&route| route & KEPT == 0)
        .map(client_of)
        .filter(|&route| route != client)
        .collect();
    routes.sort_unstable();
    routes.dedup();
    routes
}

/// Looks after those who were just granted a lock.
///
/// An owner's entries that waited at several clients were granted together: none of these clients
/// may end the hold of the others. And who is awake needs no wake-up.
pub(super) fn begin_holds(table: &mut Table, effects: &mut Effects) {
    effects.retain(|(route, wakeup)| {
        let Wakeup::Granted { name, entry, .. } = wakeup else { return true };
        if let Some(lock) = table.lock_mut(name) {
            if let Some(holder) = lock.holders.find(entry.owner) {
                let begun = holder.route & !AWAKE;
                lock.holders.set_route(entry.owner, begun);
            }
            keep_unless(lock, entry.owner, client_of(*route));
        }
        route & AWAKE == 0
    });
}

/// Notes whether a waiter looks for its turn itself.
pub(super) fn set_awake(lock: &mut LockState, entry: Entry, is_awake: bool) {
    if let Some(waiter) = lock.queue.as_mut().and_then(|queue| queue.find_mut(entry)) {
        waiter.route = if is_awake { waiter.route | AWAKE } else { waiter.route & !AWAKE };
    }
}

/// Whether a waiter's turn may come within a moment: it is the first in line, and those who hold
/// the lock are processes of their own, which go on while this one looks.
pub(super) fn is_next(
    lock: &LockState,
    entry: Entry,
    mut is_here: impl FnMut(Route) -> bool,
) -> bool {
    let first = lock.queue.as_ref().and_then(|queue| queue.first());
    first.is_some_and(|first| first.entry == entry)
        && !matches!(lock.kind, Kind::Latch | Kind::Barrier)
        && lock.holders.iter().all(|it| !it.is_lingering() && !is_here(client_of(it.route)))
}
