//! Idempotency keys: a request that is sent again, because its answer was lost, gets the lock that the first one acquired.
//!
//! They are known to this process, for as long as the lock's lease lasts. A retry that meets another server waits for that
//! lease like any other client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::{Handle, LockName};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::time::Instant;

use crate::problem::Problem;

/// How many keys are remembered.
const MOST: usize = 10_000;

/// How many are forgotten when there is no room for another one.
const FORGOTTEN: usize = MOST / 8;

/// The grants of requests with a key.
#[derive(Default)]
pub(crate) struct Keys {
    slots: Mutex<HashMap<(LockName, String), Slot>>,
}

type Slot = Arc<AsyncMutex<Option<Granted>>>;

/// A lock that a request with this key has acquired.
#[derive(Clone)]
pub(crate) struct Granted {
    pub(crate) handle: Handle,
    /// What the request asked for.
    pub(crate) print: String,
    until: Instant,
}

impl Granted {
    /// A lock that is held for so long, if it is not renewed.
    pub(crate) fn new(handle: Handle, left: Duration, print: String) -> Self {
        Self { handle, print, until: Instant::now() + left }
    }

    /// It was renewed, so its key is remembered for as long.
    pub(crate) fn extend(&mut self, left: Duration) {
        self.until = self.until.max(Instant::now() + left);
    }
}

impl Keys {
    /// The grant of an earlier request, once no other one with this key is in progress.
    pub(crate) async fn slot(
        &self,
        name: &LockName,
        key: &str,
    ) -> Result<OwnedMutexGuard<Option<Granted>>, Problem> {
        let slot = self.known_or_new(name, key)?;
        Ok(slot.lock_owned().await)
    }

    /// A key that is known is found also when there is no room for another one: its client holds the lock already.
    fn known_or_new(&self, name: &LockName, key: &str) -> Result<Slot, Problem> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name.clone(), key.to_owned());
        if let Some(slot) = slots.get(&key) {
            return Ok(slot.clone());
        }
        if slots.len() >= MOST {
            forget_the_first_to_end(&mut slots);
        }
        if slots.len() >= MOST {
            return Err(Problem::overloaded("requests with idempotency keys are in progress"));
        }
        Ok(slots.entry(key).or_default().clone())
    }

    /// Forgets a lock that was released: the next request with its key acquires it again.
    pub(crate) fn forget(&self, handle: &Handle) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of = |slot: &Slot| {
            let granted = slot.try_lock();
            granted.is_ok_and(|it| it.as_ref().is_some_and(|it| it.handle == *handle))
        };
        if !slots.is_empty() {
            slots.retain(|(name, _), slot| name != handle.name() || !is_of(slot));
        }
    }

    /// A lock was renewed, so its key is remembered for longer.
    pub(crate) fn renewed(&self, handle: &Handle, left: Duration) {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let of_name = slots.iter().filter(|((name, _), _)| name == handle.name());
        for (_, slot) in of_name {
            if let Ok(mut granted) = slot.try_lock()
                && let Some(granted) = granted.as_mut().filter(|it| it.handle == *handle)
            {
                granted.extend(left);
            }
        }
    }
}

/// When the lease of a slot ends: the moment at which it may be forgotten, which is now if its request acquired nothing. None while
/// a request uses it.
fn end(slot: &Slot, now: Instant) -> Option<Instant> {
    let granted = slot.try_lock().ok()?;
    Some(granted.as_ref().map_or(now, |it| it.until))
}

/// Makes room: for the leases that have ended, and if there are few, those that end first. Their locks may have been released
/// without a word to this server. A retry whose key is forgotten waits for the lease, as one that meets another server does.
fn forget_the_first_to_end(slots: &mut HashMap<(LockName, String), Slot>) {
    let now = Instant::now();
    let mut ends: Vec<_> = slots.values().filter_map(|slot| end(slot, now)).collect();
    if ends.is_empty() {
        return;
    }
    let last = FORGOTTEN.min(ends.len()) - 1;
    let (_, until, _) = ends.select_nth_unstable(last);
    let until = (*until).max(now);
    slots.retain(|_, slot| end(slot, now).is_none_or(|end| end > until));
}

#[cfg(test)]
mod tests {
    use tenure::Tenure;
    use tenure::blocking::block_on;

    use super::*;

    fn handle(tenure: &Tenure, name: &LockName) -> Handle {
        block_on(block_on(tenure.lock(name.clone()).acquire()).unwrap().detach()).unwrap()
    }

    fn granted(handle: &Handle, seconds: u64) -> Granted {
        Granted::new(handle.clone(), Duration::from_secs(seconds), String::new())
    }

    #[test]
    fn a_key_in_use_is_found_when_there_is_no_room_for_another() {
        let keys = Keys::default();
        let name = LockName::new("job").unwrap();
        let in_use: Vec<_> = (0..MOST)
            .map(|number| block_on(keys.slot(&name, &number.to_string())).unwrap())
            .collect();
        assert!(block_on(keys.slot(&name, "new")).is_err());
        assert!(Arc::ptr_eq(
            OwnedMutexGuard::mutex(&in_use[0]),
            &keys.known_or_new(&name, "0").unwrap()
        ));
    }

    /// Locks that were released through another server must not keep new keys out until their leases end.
    #[test]
    fn the_keys_whose_leases_end_first_make_room() {
        let (keys, tenure) = (Keys::default(), Tenure::memory().unwrap());
        let name = LockName::new("job").unwrap();
        let handle = handle(&tenure, &name);
        for number in 0..MOST {
            let mut slot = block_on(keys.slot(&name, &number.to_string())).unwrap();
            *slot = Some(granted(&handle, 3600 + number as u64));
        }
        assert!(block_on(keys.slot(&name, "new")).unwrap().is_none());
        let known = |key: usize| block_on(keys.slot(&name, &key.to_string())).unwrap().is_some();
        assert!(known(MOST - 1) && known(FORGOTTEN) && !known(FORGOTTEN - 1));
    }

    /// A request that failed, or hung up, leaves its key without a lock.
    #[test]
    fn keys_without_a_lock_make_room() {
        let keys = Keys::default();
        let name = LockName::new("job").unwrap();
        for number in 0..2 * MOST {
            assert!(block_on(keys.slot(&name, &number.to_string())).unwrap().is_none());
        }
    }

    #[test]
    fn a_key_is_remembered_for_as_long_as_its_lock_was_renewed() {
        let (keys, tenure) = (Keys::default(), Tenure::memory().unwrap());
        let name = LockName::new("job").unwrap();
        let mut slot = block_on(keys.slot(&name, "key")).unwrap();
        let mut granted = Granted::new(handle(&tenure, &name), Duration::ZERO, String::new());
        granted.extend(Duration::from_secs(30));
        granted.extend(Duration::ZERO);
        *slot = Some(granted);
        drop(slot);
        let until = end(&keys.known_or_new(&name, "key").unwrap(), Instant::now()).unwrap();
        assert!(until > Instant::now() + Duration::from_secs(20));
    }
}
