//! A request for a lock: it is granted, or stands in line, asleep or with open eyes.

use super::LocalEngine;
use super::liveness::client_files::lock_file;
use super::liveness::{self, watch};
use super::storage::transaction::Subject;
use super::waiting::store_mutex::Patience;
use crate::core::table::ClientId;
use crate::engine::{AcquireRequest, Acquired, Grant};
use crate::error::StoreError;

/// What became of a request for a lock.
pub(super) struct Entered {
    pub(super) acquired: Acquired,
    /// The other clients whose end it is to notice.
    ahead: Vec<ClientId>,
    /// Nobody will wake it: it looks itself, for changes after this one.
    pub(super) awake_since: Option<usize>,
}

impl LocalEngine {
    /// Takes the lock or joins its queue. Whoever is next looks for a moment whether its turn
    /// comes, before it goes to sleep.
    pub(super) fn enter(&self, request: &AcquireRequest) -> Result<Acquired, StoreError> {
        self.ensure_there_quickly()?;
        let mut entered = self.ask(request, || self.spin.is_worth_it())?;
        if let Some(change) = entered.awake_since {
            // In trouble now, it is in the queue all the same, and asks again in time.
            entered = self.look(request, change).unwrap_or(entered);
        }
        for other in entered.ahead {
            watch::watch(lock_file(&self.store.clients, other), &self.presence.receiver);
        }
        Ok(entered.acquired)
    }

    /// Looks for the grant of one who is awake. When the moment is over it asks again, to be woken
    /// from now on.
    fn look(&self, request: &AcquireRequest, mut change: usize) -> Result<Entered, StoreError> {
        let granted = self.spin.until(|| {
            let last = self.store.last_change();
            (std::mem::replace(&mut change, last) != last).then(|| self.peek(request)).flatten()
        });
        match granted {
            Some(grant) => {
                let acquired = Acquired::Granted(grant);
                Ok(Entered { acquired, ahead: Vec::new(), awake_since: None })
            }
            None => self.ask(request, || false),
        }
    }

    /// What was handed over to an entry, if something was. Unlike asking it writes nothing, so the
    /// hand-over is still to be confirmed, like every other.
    pub(super) fn peek(&self, request: &AcquireRequest) -> Option<Grant> {
        let AcquireRequest { name, entry, queue, .. } = request;
        let lease = queue.map(|queue| queue.claim)?.min(request.lease.duration());
        let seen = self.store.perform(Patience::Short, Subject::Lock(name), |table, now, _| {
            let holder = table.lock_mut(name)?.holders.find(entry.owner)?;
            // Stopped meanwhile, we may be late: asking tells.
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

    /// Asks for the lock, once. Whoever is next in line is asked whether it wants to be awake.
    pub(super) fn ask(
        &self,
        request: &AcquireRequest,
        wants_to_look: impl FnOnce() -> bool,
    ) -> Result<Entered, StoreError> {
        let (name, entry, client_id) = (&request.name, request.entry, self.client_id());
        // One that does not wait is asked for once, on its caller's thread: a machine that is overloaded
        // for a moment must not make it fail.
        let patience = if request.queue.is_some() { Patience::Short } else { Patience::Long };
        self.store.perform(patience, Subject::Lock(name), |table, now, effects| {
            if let Some(lock) = table.lock_mut(name) {
                liveness::keep_unless(lock, entry.owner, client_id);
            }
            let acquired = table.acquire(request, client_id, now, effects);
            let mut entered = Entered { acquired, ahead: Vec::new(), awake_since: None };
            if let (Acquired::Queued(_), Some(lock)) = (&entered.acquired, table.lock_mut(name)) {
                let is_gone = |client| self.store.is_gone(client);
                entered.ahead = liveness::ahead_of(lock, entry, client_id, is_gone);
                let is_here = |client| self.store.is_here(client);
                let is_awake = liveness::is_next(lock, entry, is_here) && wants_to_look();
                liveness::set_awake(lock, entry, is_awake);
                // The change that this transaction is about to make counts as seen: a look is for
                // what others change after it. Until it is committed, the last one is the one before.
                entered.awake_since = is_awake.then(|| self.store.last_change() + 1);
            }
            entered
        })
    }
}
