//! The store's mutex: one operation at a time, with a bounded wait, so that a stopped process does not delay the
//! report of a loss (I9).
//!
//! LMDB has a mutex of its own, but a thread that finds it locked sleeps until it is free: for ever if its holder was
//! stopped, and otherwise far longer than a transaction takes, because waking a thread is slow. Therefore every
//! operation locks this one first: it spins, then polls with backoff, and gives up in time. It is an `fcntl` lock,
//! which a forked child does not inherit, and which the kernel releases with its process.
//!
//! Progress of other operations is visible in two numbers: LMDB's transaction id, which grows with every change, and
//! a counter in the file, which grows with every operation that changed nothing. So readers are not taken for a
//! stalled process, and writers need no additional write.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use rustix::fs::{FlockOperation, fcntl_lock, major, minor};
use rustix::io::Errno;

use super::backoff::Backoff;
use crate::clock;
use crate::core::moment::Moment;
use crate::engine::local::errors;
use crate::error::StoreError;
use crate::sync::lock;

#[cfg(test)]
mod tests;

/// Several transactions fit in this time.
const SPIN_TIME: Duration = Duration::from_micros(30);

/// The longest wait, even if other operations make progress.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(1);

/// The same for a process that opens the store: many may start at once, and each needs a millisecond or more.
const MAX_WAIT_OPENING: Duration = Duration::from_secs(10);

/// The wait if there was no progress since another thread was refused: that thread has waited for all.
const KNOWN_STALL_WAIT: Duration = Duration::from_micros(300);

/// How long to wait for the mutex.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// For operations that are retried, also by the thread that must report losses in time.
    Short,
    /// For operations that the caller requests once.
    Long,
    /// For a new client. Without progress it waits no longer than `Long`.
    Opening,
}

impl Patience {
    /// How long to wait without progress of other operations.
    const fn stall_limit(self) -> Duration {
        match self {
            Self::Short => Duration::from_millis(50),
            Self::Long | Self::Opening => MAX_WAIT,
        }
    }

    /// How long to wait while other operations make progress.
    const fn max_wait(self) -> Duration {
        match self {
            Self::Short | Self::Long => MAX_WAIT,
            Self::Opening => MAX_WAIT_OPENING,
        }
    }
}

/// A thread of this process was refused because there was no progress.
#[derive(Clone, Copy)]
struct Stall {
    at: Moment,
    /// The last change that it observed.
    change: usize,
}

/// Excludes other processes by a file lock, and the threads of this process by a mutex.
pub(crate) struct StoreMutex {
    path: PathBuf,
    // Never closed before the store: that would release the lock, whichever descriptor has it.
    file: File,
    threads: Mutex<()>,
    last_stall: Mutex<Option<Stall>>,
}

impl StoreMutex {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join("mutex");
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path)?;
        Ok(Self { path, file, threads: Mutex::default(), last_stall: Mutex::default() })
    }

    /// Locks the mutex. `last_change` and the counter in the file show whether other operations make progress: a
    /// thread waits longer for a store that is only busy. After an error, nothing was done.
    pub(crate) fn acquire(
        &self,
        patience: Patience,
        last_change: impl Fn() -> usize,
    ) -> Result<StoreGuard<'_>, StoreError> {
        match self.try_acquire()? {
            Some(guard) => Ok(guard),
            None => self.wait(patience, last_change),
        }
    }

    fn wait(
        &self,
        patience: Patience,
        last_change: impl Fn() -> usize,
    ) -> Result<StoreGuard<'_>, StoreError> {
        // Both only grow, so that their sum changes with either.
        let last_change = || last_change().wrapping_add(self.unchanged_count() as usize);
        let backoff = Backoff::new(clock::now(), last_change());
        let is_opening = patience == Patience::Opening;
        let mut backoff = if is_opening { backoff.opening() } else { backoff };
        let max_wait = patience.max_wait();
        let is_known_stall = patience == Patience::Short && self.is_known_stall(&backoff);
        let stall_limit = if is_known_stall { KNOWN_STALL_WAIT } else { patience.stall_limit() };
        loop {
            if let Some(guard) = self.try_acquire()? {
                *lock(&self.last_stall) = None;
                return Ok(guard);
            }
            backoff.poll(clock::now(), last_change());
            if backoff.stalled() >= stall_limit {
                if !is_known_stall {
                    *lock(&self.last_stall) =
                        Some(Stall { at: backoff.polled_at, change: backoff.change });
                }
                return Err(self.stall_error(backoff.stalled()));
            }
            match backoff.waited() {
                waited if waited >= max_wait => {
                    return Err(errors::of_contention(&self.path, waited));
                }
                waited if waited >= SPIN_TIME => backoff.sleep(),
                _ => std::hint::spin_loop(),
            }
        }
    }

    /// Whether another thread was refused recently, and there was no progress since.
    fn is_known_stall(&self, backoff: &Backoff) -> bool {
        let last_stall = *lock(&self.last_stall);
        last_stall.is_some_and(|stall| {
            stall.change == backoff.change && backoff.polled_at.since(stall.at) < MAX_WAIT
        })
    }

    fn try_acquire(&self) -> Result<Option<StoreGuard<'_>>, StoreError> {
        let threads = match self.threads.try_lock() {
            Ok(threads) => threads,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        match fcntl_lock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(StoreGuard { mutex: self, has_changed: false, _threads: threads })),
            Err(Errno::ACCESS | Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(errors::of_files(&self.path, &error.into())),
        }
    }

    /// The number of operations that changed nothing.
    fn unchanged_count(&self) -> u64 {
        let mut count = [0; 8];
        // A new file is empty, and counts as zero.
        let _ = self.file.read_exact_at(&mut count, 0);
        u64::from_le_bytes(count)
    }

    fn stall_error(&self, stalled: Duration) -> StoreError {
        // The kernel's list may change while it is read.
        let owner = (0..3).find_map(|_| lock_owner(&self.path));
        errors::of_stall(&self.path, owner, stalled)
    }
}

/// Unlocks the mutex when it is dropped.
pub(crate) struct StoreGuard<'a> {
    mutex: &'a StoreMutex,
    has_changed: bool,
    _threads: MutexGuard<'a, ()>,
}

impl StoreGuard<'_> {
    /// The operation has changed the transaction id, which shows its progress.
    pub(crate) const fn mark_changed(&mut self) {
        self.has_changed = true;
    }
}

impl Drop for StoreGuard<'_> {
    fn drop(&mut self) {
        let file = &self.mutex.file;
        if !self.has_changed {
            let count = self.mutex.unchanged_count().wrapping_add(1);
            // If the disk was full from the start, operations that change nothing do not show.
            let _ = file.write_all_at(&count.to_le_bytes(), 0);
        }
        let _ = fcntl_lock(file, FlockOperation::Unlock);
    }
}

/// The process that has a file locked, according to the kernel.
fn lock_owner(path: &Path) -> Option<u32> {
    let found = fs::metadata(path).ok()?;
    let (device, inode) = (found.dev(), found.ino());
    // As in `1: POSIX ADVISORY WRITE 4711 fe:00:326269 0 EOF`.
    let file = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let words = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut owners = words.filter(|it| it.get(1) == Some(&"POSIX"));
    let pid = owners.find(|it| it.get(5) == Some(&file.as_str()))?.get(4)?.parse().ok()?;
    // A process of another namespace has no pid here.
    (pid > 0).then_some(pid)
}
