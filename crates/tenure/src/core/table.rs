//! All locks of one store: the state machine behind every engine.
//!
//! Each method is one operation at one moment: it changes the state, returns the outcome, and pushes its
//! wake-ups. It is the memory engine, and the oracle that other engines are compared with. A lock without
//! holders and waiters is removed: fences come from one counter for all names, so none is kept per name.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use super::fence::Fences;
use super::lock::{LockState, Scene};
use super::moment::{Moment, Now};
use super::name::LockName;
use crate::engine::{
    AcquireRequest, Acquired, CancelRequest, ForceOutcome, ForceRequest, ListRequest,
    ReleaseOutcome, ReleaseRequest, Renewal, Renewed, Wakeup,
};
use crate::info::{ForceRecord, HolderInfo, LockInfo, WaiterInfo};

#[cfg(test)]
pub(crate) mod operation;
#[cfg(test)]
mod tests;

/// Identifies the client that a wake-up is for.
pub(crate) type ClientId = u32;

/// The wake-ups of an operation, each with its client.
pub(crate) type Effects = Vec<(ClientId, Wakeup)>;

/// How many records of forced releases are kept. They are rare, and logs have the older ones.
const FORCED_KEPT: usize = 1000;

/// How many holders and waiters are shown of an inspected lock, and of each lock in a list.
const SHOWN: (usize, usize) = (LockInfo::HOLDERS_SHOWN, LockInfo::WAITERS_SHOWN);
const LISTED: (usize, usize) = (LockInfo::HOLDERS_LISTED, 0);

/// Fewer locks than this are never swept.
const SWEEP_FROM: usize = 1024;

/// All locks of one store.
#[derive(Debug, Default)]
pub(crate) struct Table {
    // Boxed, because a hash table keeps an eighth or more of its slots empty.
    locks: HashMap<LockName, Box<LockState>>,
    fences: Fences,
    forced: VecDeque<ForceRecord>,
    sweep_at: usize,
}

#[cfg(all(feature = "local", target_os = "linux"))]
impl Table {
    /// An empty table that continues after a fence: for a store that keeps its locks elsewhere, and puts
    /// those that an operation needs into a table.
    pub(crate) fn after(fence: u64) -> Self {
        Self { fences: Fences::after(fence), ..Self::default() }
    }

    pub(crate) fn put(&mut self, name: LockName, lock: LockState) {
        self.locks.insert(name, Box::new(lock));
    }

    pub(crate) fn lock_mut(&mut self, name: &LockName) -> Option<&mut LockState> {
        self.locks.get_mut(name).map(|lock| &mut **lock)
    }

    pub(crate) fn put_forced(&mut self, record: ForceRecord) {
        self.forced.push_front(record);
    }

    /// The latest record.
    pub(crate) fn last_forced(&self) -> Option<&ForceRecord> {
        self.forced.front()
    }
}

impl Table {
    #[cfg(any(test, all(feature = "local", target_os = "linux")))]
    pub(crate) fn last_fence(&self) -> u64 {
        self.fences.last().value()
    }

    pub(crate) fn acquire(
        &mut self,
        request: &AcquireRequest,
        client_id: ClientId,
        now: Now,
        effects: &mut Effects,
    ) -> Acquired {
        self.sweep(now.clock);
        let mut scene = Scene { now, fences: &mut self.fences, effects };
        if let Some(lock) = self.locks.get_mut(&request.name) {
            return lock.acquire(request, client_id, &mut scene);
        }
        let mut lock = Box::new(LockState::new(request.shape));
        let acquired = lock.acquire(request, client_id, &mut scene);
        self.locks.insert(request.name.clone(), lock);
        acquired
    }

    pub(crate) fn renew(&mut self, renewal: &Renewal, now: Now, effects: &mut Effects) -> Renewed {
        self.on_lock(&renewal.name, now, effects, |lock, scene| lock.renew(renewal, scene))
            .unwrap_or(Renewed::NotHeld)
    }

    pub(crate) fn release(
        &mut self,
        request: &ReleaseRequest,
        now: Now,
        effects: &mut Effects,
    ) -> ReleaseOutcome {
        self.on_lock(&request.name, now, effects, |lock, scene| lock.release(request, scene))
            .unwrap_or(ReleaseOutcome::NotHeld)
    }

    pub(crate) fn cancel(&mut self, request: &CancelRequest, now: Now, effects: &mut Effects) {
        self.on_lock(&request.name, now, effects, |lock, scene| lock.cancel(request, scene));
    }

    /// Takes a lock away, and keeps a record with the client and the reason.
    pub(crate) fn force_release(
        &mut self,
        request: &ForceRequest,
        now: Now,
        effects: &mut Effects,
    ) -> ForceOutcome {
        let ForceRequest { name, expected, .. } = request;
        let taken =
            self.on_lock(name, now, effects, |lock, scene| lock.force(name, *expected, scene));
        let owners = taken.unwrap_or_default();
        if owners.is_empty() {
            return ForceOutcome::NotHeld;
        }
        self.forced.truncate(FORCED_KEPT - 1);
        self.forced.push_front(ForceRecord {
            name: name.clone(),
            owners: owners.clone(),
            by: request.by.clone(),
            reason: request.reason.clone(),
            at: calendar(now.wall),
        });
        ForceOutcome::Released(owners)
    }

    pub(crate) fn inspect(&mut self, name: &LockName, now: Now, effects: &mut Effects) -> LockInfo {
        let seen = self.on_lock(name, now, effects, |lock, scene| {
            lock.settle(name, scene);
            (!lock.is_idle()).then(|| describe(name, lock, now.clock, SHOWN))
        });
        let mut info = seen.flatten().unwrap_or_else(|| LockInfo::free(name.clone()));
        info.forced = self.forced.iter().find(|record| record.name == *name).cloned();
        info
    }

    /// The locks with holders or waiters, sorted by name.
    pub(crate) fn list(
        &mut self,
        request: &ListRequest,
        now: Now,
        effects: &mut Effects,
    ) -> Vec<LockInfo> {
        let names = self.locks.keys().filter(|name| name.as_str().starts_with(&request.prefix));
        let mut names: Vec<_> = names.cloned().collect();
        names.sort_unstable();
        let infos = names.iter().filter_map(|name| {
            let seen = self.on_lock(name, now, effects, |lock, scene| {
                lock.settle(name, scene);
                (!lock.is_idle()).then(|| describe(name, lock, now.clock, LISTED))
            });
            seen.flatten()
        });
        infos.take(request.limit).collect()
    }

    /// Removes locks whose holders crashed and that were not requested since, each time the number of locks
    /// has doubled.
    fn sweep(&mut self, now: Moment) {
        if self.locks.len() < self.sweep_at {
            return;
        }
        self.locks.retain(|_, lock| {
            lock.holders.expire(now);
            !lock.is_idle()
        });
        self.sweep_at = SWEEP_FROM.max(self.locks.len() * 2);
    }

    /// Runs an operation on a lock that exists, and removes the lock if it is idle afterwards.
    fn on_lock<T>(
        &mut self,
        name: &LockName,
        now: Now,
        effects: &mut Effects,
        operation: impl FnOnce(&mut LockState, &mut Scene<'_>) -> T,
    ) -> Option<T> {
        let lock = self.locks.get_mut(name)?;
        let outcome = operation(lock, &mut Scene { now, fences: &mut self.fences, effects });
        if lock.is_idle() {
            self.locks.remove(name);
        }
        Some(outcome)
    }
}

fn describe(
    name: &LockName,
    lock: &LockState,
    now: Moment,
    (holders_shown, waiters_shown): (usize, usize),
) -> LockInfo {
    let holder = |it: &super::holders::Holder| HolderInfo {
        owner: it.owner,
        about: it.about.clone(),
        permits: it.permits,
        entries: it.entries.count(),
        fence: it.fence,
        since: calendar(it.since),
        lease_left: it.until.since(now),
    };
    let waiter = |it: &super::queue::Waiter| WaiterInfo {
        owner: it.entry.owner,
        about: it.about.clone(),
        permits: it.permits,
        since: calendar(it.since),
    };
    let queue = lock.queue.as_deref();
    let mut holders: Vec<_> = lock.holders.by_deadline().take(holders_shown).map(holder).collect();
    holders.sort_by_key(|holder| holder.fence);
    LockInfo {
        kind: Some(lock.kind),
        limit: lock.limit,
        holding: lock.holders.len(),
        holders,
        waiting: queue.map_or(0, |queue| queue.len()),
        waiters: queue
            .into_iter()
            .flat_map(|it| it.iter())
            .take(waiters_shown)
            .map(waiter)
            .collect(),
        ..LockInfo::free(name.clone())
    }
}

fn calendar(wall: Moment) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(wall.as_micros())
}
