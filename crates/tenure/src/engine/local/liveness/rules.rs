//! What the end of a client means for the holders and waiters of a lock, and which clients a waiter watches. The
//! marks in a stored client id are set and read here alone.

use std::time::Duration;

use crate::core::holders::Holder;
use crate::core::lock::LockState;
use crate::core::moment::Moment;
use crate::core::shape::Kind;
use crate::core::table::{ClientId, Effects, Table};
use crate::engine::Wakeup;
use crate::owner::{Entry, Owner};

/// Marks the client id of a hold that does not end with its client: it was detached, or has entries of several
/// clients. Then its lease alone ends it, as on every other engine.
pub(crate) const DETACHED: ClientId = 1 << 31;

/// Marks the client id of a waiter that spins for its grant, and needs no wake-up.
pub(crate) const SPINNING: ClientId = 1 << 30;

/// Client ids are below the marks.
pub(crate) const MAX_CLIENT: ClientId = SPINNING - 1;

/// The extension of an inherited hold. It need not be short: the end of the heirs is detected as for any client.
const INHERITED_EXTENSION: Duration = Duration::from_secs(5);

/// How many clients ahead of it in the queue a waiter watches.
const MAX_WATCHED: usize = 3;

/// A client id without the marks.
pub(crate) const fn client_of(client_id: ClientId) -> ClientId {
    client_id & MAX_CLIENT
}

/// Which waiters are checked for liveness.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiters {
    /// From the head of the queue to the first live one. The others are checked when they are at the head: to check
    /// all of them each time would cost more the longer the queue is.
    First,
    All,
}

/// Ends the leases of holders whose client is dead, and drops such waiters from the queue (I7).
pub(crate) fn expire_dead(
    lock: &mut LockState,
    now: Moment,
    waiters: Waiters,
    mut is_dead: impl FnMut(ClientId) -> bool,
) {
    let dead = client_bound(lock).filter(|it| is_dead(it.client_id));
    let ended: Vec<Owner> = dead.map(|it| it.owner).collect();
    for owner in ended {
        lock.holders.set_until(owner, now);
    }
    let Some(queue) = &mut lock.queue else {
        return;
    };
    // A barrier opens for all waiters at once: dead ones must not be counted.
    let is_full = lock.kind == Kind::Barrier && queue.len() + 1 >= lock.limit as usize;
    if waiters == Waiters::All || is_full {
        for waiter in queue.iter_mut().filter(|it| is_dead(client_of(it.client_id))) {
            waiter.alive_until = now;
        }
        queue.bury_dead(now);
    } else {
        while queue.first().is_some_and(|first| is_dead(client_of(first.client_id))) {
            queue.pop();
        }
    }
    lock.queue.take_if(|queue| queue.is_empty());
}

/// Extends the leases of holders whose client has ended, but whose child processes have inherited the hold: it lasts
/// as long as they do.
pub(crate) fn extend_inherited(
    lock: &mut LockState,
    now: Moment,
    mut is_inherited: impl FnMut(ClientId) -> bool,
) {
    let expired = client_bound(lock).filter(|it| it.until <= now);
    let inherited: Vec<Owner> =
        expired.filter(|it| is_inherited(it.client_id)).map(|it| it.owner).collect();
    for owner in inherited {
        lock.holders.set_until(owner, now + INHERITED_EXTENSION);
    }
}

/// The holders that end with their client. A lingering hold was released and outlasts its client; so does a latch's
/// count.
fn client_bound(lock: &LockState) -> impl Iterator<Item = &Holder> {
    let of_client = lock.holders.iter().filter(|it| it.client_id & DETACHED == 0);
    of_client.filter(|it| !it.is_lingering() && lock.kind != Kind::Latch)
}

/// Whether the lock has a live holder or waiter.
pub(crate) fn is_in_use(lock: &LockState, now: Moment) -> bool {
    let mut waiters = lock.queue.iter().flat_map(|queue| queue.iter());
    lock.holders.iter().any(|it| it.until > now) || waiters.any(|it| it.alive_until > now)
}

/// From now on the owner's hold does not end with its client.
pub(crate) fn detach(lock: &mut LockState, owner: Owner) {
    if let Some(holder) = lock.holders.find(owner) {
        let detached = holder.client_id | DETACHED;
        lock.holders.set_route(owner, detached);
    }
}

/// The same, unless the hold belongs to this client.
pub(crate) fn detach_unless_client(lock: &mut LockState, owner: Owner, client: ClientId) {
    let holder = lock.holders.find(owner);
    if holder.is_some_and(|holder| client_of(holder.client_id) != client) {
        detach(lock, owner);
    }
}

/// The other clients whose end this waiter must detect: the last few live ones ahead of it in the queue and, if there
/// are fewer, the holders.
///
/// Every client is watched by the waiters behind it, so that no end is missed, and an end wakes a few waiters instead
/// of all (no thundering herd). A new holder was ahead of the next waiter, which therefore watches it already. To
/// watch only the direct predecessor is not enough: when that one gives up, the waiter would watch a client that is
/// no longer ahead of it, until its next poll.
pub(crate) fn clients_to_watch(
    lock: &mut LockState,
    entry: Entry,
    client: ClientId,
    mut is_dead: impl FnMut(ClientId) -> bool,
) -> Vec<ClientId> {
    // The waiters of a latch or a barrier wait for other clients to arrive, not to end.
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
        // Drop dead waiters here: a dead client cannot watch its predecessors. The first one was checked before; if
        // it has ended since, its end wakes this waiter, which then settles the lock.
        if first != Some(entry) && is_dead(other) {
            queue.remove(entry);
            continue;
        }
        watched.push(other);
        if watched.len() == MAX_WATCHED {
            return watched;
        }
    }
    let holders =
        lock.holders.iter().filter(|it| !it.is_lingering() && it.client_id & DETACHED == 0);
    watched.extend(holders.map(|it| client_of(it.client_id)).filter(|&it| it != client));
    watched.sort_unstable();
    watched.dedup();
    watched
}

/// Completes the grants of an operation.
///
/// The entries of one owner that waited at several clients were granted together: the end of one client must not end
/// the hold of the others. A spinning waiter gets no wake-up.
pub(crate) fn settle_grants(table: &mut Table, effects: &mut Effects) {
    effects.retain(|(client_id, wakeup)| {
        let Wakeup::Granted { name, entry, .. } = wakeup else { return true };
        if let Some(lock) = table.lock_mut(name) {
            if let Some(holder) = lock.holders.find(entry.owner) {
                let client_id = holder.client_id & !SPINNING;
                lock.holders.set_route(entry.owner, client_id);
            }
            detach_unless_client(lock, entry.owner, client_of(*client_id));
        }
        client_id & SPINNING == 0
    });
}

/// Marks whether a waiter spins.
pub(crate) fn set_spinning(lock: &mut LockState, entry: Entry, is_spinning: bool) {
    if let Some(waiter) = lock.queue.as_mut().and_then(|queue| queue.find_mut(entry)) {
        waiter.client_id =
            if is_spinning { waiter.client_id | SPINNING } else { waiter.client_id & !SPINNING };
    }
}

/// Whether a grant may come within the spin time: the waiter is the first in the queue, and the holders are other
/// processes, which run while this thread spins.
pub(crate) fn may_spin(
    lock: &LockState,
    entry: Entry,
    mut is_own_client: impl FnMut(ClientId) -> bool,
) -> bool {
    let first = lock.queue.as_ref().and_then(|queue| queue.first());
    first.is_some_and(|first| first.entry == entry)
        && !matches!(lock.kind, Kind::Latch | Kind::Barrier)
        && lock
            .holders
            .iter()
            .all(|it| !it.is_lingering() && !is_own_client(client_of(it.client_id)))
}
