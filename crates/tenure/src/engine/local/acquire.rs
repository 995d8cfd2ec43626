//! A request for a lock: it is granted, or queued, where the first waiter spins before it parks.

use super::LocalEngine;
use super::liveness::client_files::lock_file;
use super::liveness::{self, watch};
use super::storage::transaction::Subject;
use super::waiting::store_mutex::Patience;
use crate::core::table::ClientId;
use crate::engine::{AcquireRequest, Acquired, Grant};
use crate::error::StoreError;

/// The result of one request for a lock.
pub(super) struct Attempt {
    pub(super) acquired: Acquired,
    /// The other clients whose end this waiter must detect.
    watched: Vec<ClientId>,
    /// The waiter is not woken, but polls for transactions after this one.
    pub(super) spin_since: Option<usize>,
}

impl LocalEngine {
    /// Takes the lock or joins its queue. The first waiter spins for its grant before it parks.
    pub(super) fn acquire_or_queue(
        &self,
        request: &AcquireRequest,
    ) -> Result<Acquired, StoreError> {
        self.ensure_in_place_quickly()?;
        let mut attempt = self.attempt(request, || self.spin.is_worth_it())?;
        if let Some(change) = attempt.spin_since {
            // On an error the entry is still queued, and the driver retries in time.
            attempt = self.spin_for_grant(request, change).unwrap_or(attempt);
        }
        for other in attempt.watched {
            watch::watch(lock_file(&self.store.clients, other), &self.presence.receiver);
        }
        Ok(attempt.acquired)
    }

    /// Polls for the grant of a spinning waiter. When the spin time is over it makes another attempt, to be woken
    /// from now on.
    fn spin_for_grant(
        &self,
        request: &AcquireRequest,
        mut change: usize,
    ) -> Result<Attempt, StoreError> {
        let granted = self.spin.until(|| {
            let last = self.store.last_change();
            (std::mem::replace(&mut change, last) != last)
                .then(|| self.poll_grant(request))
                .flatten()
        });
        match granted {
            Some(grant) => {
                let acquired = Acquired::Granted(grant);
                Ok(Attempt { acquired, watched: Vec::new(), spin_since: None })
            }
            None => self.attempt(request, || false),
        }
    }

    /// The lock's hand-over to an entry, if there was one. Unlike an attempt it writes nothing, so that the hand-over
    /// must still be confirmed, like every other.
    pub(super) fn poll_grant(&self, request: &AcquireRequest) -> Option<Grant> {
        let AcquireRequest { name, entry, queue, .. } = request;
        let lease = queue.map(|queue| queue.claim)?.min(request.lease.duration());
        let seen = self.store.perform(Patience::Short, Subject::Lock(name), |table, now, _| {
            let holder = table.lock_mut(name)?.holders.find(entry.owner)?;
            // If this process was stopped meanwhile, the grant may have expired: an attempt finds out.
            let is_fresh = holder.until.since(now.clock) > lease / 2;
            let (fence, fences, at) = (holder.fence, holder.fences, holder.until.before(lease));
            (is_fresh && holder.entries.has(entry.number)).then_some(Grant {
                fence,
                fences,
                lease,
                at,
            })
        });
        seen.ok().flatten()
    }

    /// Requests the lock once. `wants_to_spin` is called only for a waiter that may spin.
    pub(super) fn attempt(
        &self,
        request: &AcquireRequest,
        wants_to_spin: impl FnOnce() -> bool,
    ) -> Result<Attempt, StoreError> {
        let (name, entry, client_id) = (&request.name, request.entry, self.client_id());
        // A request that does not queue is made once, on its caller's thread: a machine that is briefly overloaded
        // must not make it fail.
        let patience = if request.queue.is_some() { Patience::Short } else { Patience::Long };
        self.store.perform(patience, Subject::Lock(name), |table, now, effects| {
            if let Some(lock) = table.lock_mut(name) {
                liveness::detach_unless_client(lock, entry.owner, client_id);
            }
            let acquired = table.acquire(request, client_id, now, effects);
            let mut attempt = Attempt { acquired, watched: Vec::new(), spin_since: None };
            if let (Acquired::Queued(_), Some(lock)) = (&attempt.acquired, table.lock_mut(name)) {
                let is_dead = |client| self.store.is_dead(client);
                attempt.watched = liveness::clients_to_watch(lock, entry, client_id, is_dead);
                let is_own_client = |client| self.store.is_own_client(client);
                let is_spinning = liveness::may_spin(lock, entry, is_own_client) && wants_to_spin();
                liveness::set_spinning(lock, entry, is_spinning);
                // +1: this transaction's id is visible only after commit, and the spin waits for later ones.
                attempt.spin_since = is_spinning.then(|| self.store.last_change() + 1);
            }
            attempt
        })
    }
}
