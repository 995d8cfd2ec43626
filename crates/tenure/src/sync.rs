//! Locking within the process.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose data stays right even if a holder panicked: every critical section in
/// this crate leaves it consistent at each step that can panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
