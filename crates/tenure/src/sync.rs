//! Locking within the process.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex and ignores its poison: every critical section of this crate leaves the data consistent at
/// each step that can panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
