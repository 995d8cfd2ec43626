//! Whose client lives, and what ends with one that does not.

use std::time::Duration;

use crate::core::holders::Holder;
use crate::core::lock::LockState;
use crate::core::moment::Moment;
use crate::core::shape::Kind;
use crate::core::table::{ClientId, Effects, Table};
use crate::engine::Wakeup;
use crate::owner::{Entry, Owner};

/// Marks the route of a hold that does not end with its client: it was detached, or entries of
/// several clients stand on it. It then lives by its lease, as on every other engine.
pub(crate) const KEPT: ClientId = 1 << 31;

/// Marks the route of a waiter that looks for its turn itself, so that nobody has to wake it.
pub(crate) const AWAKE: ClientId = 1 << 30;

/// Clients have numbers below the marks.
pub(crate) const MAX_CLIENT: ClientId = AWAKE - 1;

/// For how long a hold that was inherited is prolonged at a time. Its end is noticed by the end of its
/// heirs.
const INHERITED: Duration = Duration::from_secs(5);

/// How many of those ahead in the queue a waiter watches.
const FEW: usize = 3;

/// The client of a route, without the marks.
pub(crate) const fn client_of(client_id: ClientId) -> ClientId {
    client_id & MAX_CLIENT
}

/// Which waiters are asked for whether they live.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiters {
    /// From the head of the queue to the first that lives: the others are asked for when it is
    /// their turn. To ask for all, each time, would take longer the more there are.
    First,
    All,
}

/// Ends the leases of holders whose client is gone, and takes such waiters out of the queue.
pub(crate) fn end_the_gone(
    lock: &mut LockState,
    now: Moment,
    waiters: Waiters,
    mut is_gone: impl FnMut(ClientId) -> bool,
) {
    let gone = bound_to_clients(lock).filter(|it| is_gone(it.client_id));
    let ended: Vec<Owner> = gone.map(|it| it.owner).collect();
    for owner in ended {
        lock.holders.set_until(owner, now);
    }
    let Some(queue) = &mut lock.queue else {
        return;
    };
    // A barrier opens for all who wait at once: whoever is gone must not be counted.
    let is_full = lock.kind == Kind::Barrier && queue.len() + 1 >= lock.limit as usize;
    if waiters == Waiters::All || is_full {
        for waiter in queue.iter_mut().filter(|it| is_gone(client_of(it.client_id))) {
            waiter.alive_until = now;
        }
        queue.bury_dead(now);
    } else {
        while queue.first().is_some_and(|first| is_gone(client_of(first.client_id))) {
            queue.pop();
        }
    }
    lock.queue.take_if(|queue| queue.is_empty());
}

/// Prolongs the leases of holders whose client has ended, and left them to processes that it had started:
/// they last as long as these do.
pub(crate) fn prolong_the_inherited(
    lock: &mut LockState,
    now: Moment,
    mut is_inherited: impl FnMut(ClientId) -> bool,
) {
    let over = bound_to_clients(lock).filter(|it| it.until <= now);
    let inherited: Vec<Owner> =
        over.filter(|it| is_inherited(it.client_id)).map(|it| it.owner).collect();
    for owner in inherited {
        lock.holders.set_until(owner, now + INHERITED);
    }
}

/// The holders that end with their client. What lingers was released, and is to outlast its client; so is a
/// count of a latch.
fn bound_to_clients(lock: &LockState) -> impl Iterator<Item = &Holder> {
    let of_client = lock.holders.iter().filter(|it| it.client_id & KEPT == 0);
    of_client.filter(|it| !it.is_lingering() && lock.kind != Kind::Latch)
}

/// Whether somebody holds a lock or waits for it at this moment.
pub(crate) fn is_needed(lock: &LockState, now: Moment) -> bool {
    let mut waiters = lock.queue.iter().flat_map(|queue| queue.iter());
    lock.holders.iter().any(|it| it.until > now) || waiters.any(|it| it.alive_until > now)
}

/// From now on the owner's hold does not end with its client.
pub(crate) fn keep(lock: &mut LockState, owner: Owner) {
    if let Some(holder) = lock.holders.find(owner) {
        let kept = holder.client_id | KEPT;
        lock.holders.set_route(owner, kept);
    }
}

/// The same, unless its client is this one.
pub(crate) fn keep_unless(lock: &mut LockState, owner: Owner, client: ClientId) {
    let holder = lock.holders.find(owner);
    if holder.is_some_and(|holder| client_of(holder.client_id) != client) {
        keep(lock, owner);
    }
}

/// The other clients whose end this waiter is to notice: the last few that live ahead of it in the
/// queue and, if there are fewer, those who hold the lock.
///
/// Each of them is watched by those behind it, so nobody's end is missed, and an end wakes a few
/// and not all. Whoever comes to hold the lock was ahead of the next in line, and so is watched by it
/// already. The last one alone would do, if nobody ever left the queue: then the next in line would
/// watch one who is not ahead of it any more, until it asks again.
pub(crate) fn ahead_of(
    lock: &mut LockState,
    entry: Entry,
    client: ClientId,
    mut is_gone: impl FnMut(ClientId) -> bool,
) -> Vec<ClientId> {
    // Those who wait at a latch or a barrier wait for others to come, not to go.
    if matches!(lock.kind, Kind::Latch | Kind::Barrier) {
        return Vec::new();
    }
    let Some(queue) = &mut lock.queue else { return Vec::new() };
    let first = queue.first().map(|first| first.entry);
    let before = queue.iter().take_while(|it| it.entry != entry);
    let before: Vec<_> = before.map(|it| (it.entry, client_of(it.client_id))).collect();
    let mut watched = Vec::new();
    for (entry, other) in before.into_iter().rev() {
        if other == client || watched.contains(&other) {
            continue;
        }
        // Nobody behind it would watch those ahead of it. Who is first was asked for before; gone
        // since, it is left to whoever next settles the lock, and that is us, when its end wakes us.
        if first != Some(entry) && is_gone(other) {
            queue.remove(entry);
            continue;
        }
        watched.push(other);
        if watched.len() == FEW {
            return watched;
        }
    }
    let holders = lock.holders.iter().filter(|it| !it.is_lingering() && it.client_id & KEPT == 0);
    watched.extend(holders.map(|it| client_of(it.client_id)).filter(|&it| it != client));
    watched.sort_unstable();
    watched.dedup();
    watched
}

/// Looks after those who were just granted a lock.
///
/// An owner's entries that waited at several clients were granted together: none of these clients
/// may end the hold of the others. And who is awake needs no wake-up.
pub(crate) fn begin_holds(table: &mut Table, effects: &mut Effects) {
    effects.retain(|(client_id, wakeup)| {
        let Wakeup::Granted { name, entry, .. } = wakeup else { return true };
        if let Some(lock) = table.lock_mut(name) {
            if let Some(holder) = lock.holders.find(entry.owner) {
                let begun = holder.client_id & !AWAKE;
                lock.holders.set_route(entry.owner, begun);
            }
            keep_unless(lock, entry.owner, client_of(*client_id));
        }
        client_id & AWAKE == 0
    });
}

/// Notes whether a waiter looks for its turn itself.
pub(crate) fn set_awake(lock: &mut LockState, entry: Entry, is_awake: bool) {
    if let Some(waiter) = lock.queue.as_mut().and_then(|queue| queue.find_mut(entry)) {
        waiter.client_id =
            if is_awake { waiter.client_id | AWAKE } else { waiter.client_id & !AWAKE };
    }
}

/// Whether a waiter's turn may come within a moment: it is the first in line, and those who hold
/// the lock are processes of their own, which go on while this one looks.
pub(crate) fn is_next(
    lock: &LockState,
    entry: Entry,
    mut is_here: impl FnMut(ClientId) -> bool,
) -> bool {
    let first = lock.queue.as_ref().and_then(|queue| queue.first());
    first.is_some_and(|first| first.entry == entry)
        && !matches!(lock.kind, Kind::Latch | Kind::Barrier)
        && lock.holders.iter().all(|it| !it.is_lingering() && !is_here(client_of(it.client_id)))
}
