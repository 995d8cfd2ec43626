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
}

impl Keys {
    /// The grant of an earlier request, once no other one with this key is in progress.
    pub(crate) async fn slot(
        &self,
        name: &LockName,
        key: &str,
    ) -> Result<OwnedMutexGuard<Option<Granted>>, Problem> {
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            if slots.len() >= MOST {
                slots.retain(|_, slot| !is_over(slot));
            }
            if slots.len() >= MOST {
                return Err(Problem::overloaded("idempotency keys are in use"));
            }
            slots.entry((name.clone(), key.to_owned())).or_default().clone()
        };
        Ok(slot.lock_owned().await)
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
                granted.until = granted.until.max(Instant::now() + left);
            }
        }
    }
}

/// Whether a slot is not in use, and its lease has ended.
fn is_over(slot: &Slot) -> bool {
    let granted = slot.try_lock();
    granted.is_ok_and(|it| it.as_ref().is_none_or(|it| it.until <= Instant::now()))
}
