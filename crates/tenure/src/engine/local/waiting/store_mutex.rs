//! One operation at a time, and a bound on waiting for it.
//!
//! LMDB has a mutex of its own, but whoever finds it taken sleeps until it is free: however long that
//! takes if its owner was stopped, and far longer than a transaction even if it was not, because
//! to wake a thread takes its time. So everyone takes this lock first, looks for it with open eyes for
//! a moment, then again and again, and gives up in time. It is a lock of the kind that a forked child
//! does not get and that the kernel frees with its process.
//!
//! Whether others get on is seen by two numbers: LMDB's, which grows with every transaction that changes
//! something, and one in the file, which grows with every turn that changed nothing. So those who only
//! look are not taken for one who is stuck, and those who write have no further number to write.

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

/// Several transactions take less.
const MOMENT: Duration = Duration::from_micros(30);

/// No turn at all within this time is refused, whatever others do meanwhile.
pub(crate) const LONGEST: Duration = Duration::from_secs(1);

/// The same for a process that begins: many may begin at once, and each needs a millisecond or more.
const LONGEST_OPENING: Duration = Duration::from_secs(10);

/// Whoever finds that nothing has changed since another was refused gives up after this time: that
/// other one has waited for all.
const KNOWN: Duration = Duration::from_micros(300);

/// How long to wait for the turn while nothing changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// For what is done again if it is refused, also by the thread that must tell losses in time.
    Short,
    /// For what somebody asked for once.
    Long,
    /// For a new client. Where nothing changes it waits no longer than others.
    Opening,
}

impl Patience {
    const fn time(self) -> Duration {
        match self {
            Self::Short => Duration::from_millis(50),
            Self::Long | Self::Opening => LONGEST,
        }
    }

    /// How long to wait while others get on.
    const fn longest(self) -> Duration {
        match self {
            Self::Short | Self::Long => LONGEST,
            Self::Opening => LONGEST_OPENING,
        }
    }
}

/// Somebody here was refused because nothing changed.
#[derive(Clone, Copy)]
struct Refusal {
    at: Moment,
    /// What had changed last.
    change: usize,
}

/// Whose turn it is, among the processes and among the threads of this one.
pub(crate) struct StoreMutex {
    path: PathBuf,
    // Never closed before the store: that would end the lock, whichever descriptor has it.
    file: File,
    here: Mutex<()>,
    refusal: Mutex<Option<Refusal>>,
}

impl StoreMutex {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join("mutex");
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path)?;
        Ok(Self { path, file, here: Mutex::default(), refusal: Mutex::default() })
    }

    /// Waits for the turn. Refused, nothing was done. `last_change` and the number in the file tell
    /// whether others get on: a store that is only busy is waited for.
    pub(crate) fn take(
        &self,
        patience: Patience,
        last_change: impl Fn() -> usize,
    ) -> Result<StoreGuard<'_>, StoreError> {
        match self.try_take()? {
            Some(guard) => Ok(guard),
            None => self.wait(patience, last_change),
        }
    }

    fn wait(
        &self,
        patience: Patience,
        last_change: impl Fn() -> usize,
    ) -> Result<StoreGuard<'_>, StoreError> {
        // Both only grow, so that their sum tells all.
        let last_change = || last_change().wrapping_add(self.count() as usize);
        let backoff = Backoff::begin(clock::now(), last_change());
        let is_opening = patience == Patience::Opening;
        let mut backoff = if is_opening { backoff.opening() } else { backoff };
        let longest = patience.longest();
        let is_known = patience == Patience::Short && self.is_known(&backoff);
        let patience = if is_known { KNOWN } else { patience.time() };
        loop {
            if let Some(guard) = self.try_take()? {
                *lock(&self.refusal) = None;
                return Ok(guard);
            }
            backoff.look(clock::now(), last_change());
            if backoff.still() >= patience {
                if !is_known {
                    *lock(&self.refusal) =
                        Some(Refusal { at: backoff.looked, change: backoff.change });
                }
                return Err(self.stuck(backoff.still()));
            }
            match backoff.waited() {
                waited if waited >= longest => return Err(errors::of_crowd(&self.path, waited)),
                waited if waited >= MOMENT => backoff.nap(),
                _ => std::hint::spin_loop(),
            }
        }
    }

    /// Whether another was refused a moment ago, and nothing has changed since.
    fn is_known(&self, backoff: &Backoff) -> bool {
        let refusal = *lock(&self.refusal);
        refusal.is_some_and(|refusal| {
            refusal.change == backoff.change && backoff.looked.since(refusal.at) < LONGEST
        })
    }

    fn try_take(&self) -> Result<Option<StoreGuard<'_>>, StoreError> {
        let here = match self.here.try_lock() {
            Ok(here) => here,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        match fcntl_lock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(StoreGuard { mutex: self, is_seen: false, _here: here })),
            Err(Errno::ACCESS | Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(errors::of_files(&self.path, &error.into())),
        }
    }

    /// How many turns have changed nothing.
    fn count(&self) -> u64 {
        let mut count = [0; 8];
        // A file that is new has none.
        let _ = self.file.read_exact_at(&mut count, 0);
        u64::from_le_bytes(count)
    }

    fn stuck(&self, still: Duration) -> StoreError {
        // What is listed may change while it is read.
        let owner = (0..3).find_map(|_| owner_of(&self.path));
        errors::of_stuck(&self.path, owner, still)
    }
}

/// Ended by the drop.
pub(crate) struct StoreGuard<'a> {
    mutex: &'a StoreMutex,
    is_seen: bool,
    _here: MutexGuard<'a, ()>,
}

impl StoreGuard<'_> {
    /// Others see by what it has changed that this turn was had.
    pub(crate) const fn is_seen_by_its_change(&mut self) {
        self.is_seen = true;
    }
}

impl Drop for StoreGuard<'_> {
    fn drop(&mut self) {
        let file = &self.mutex.file;
        if !self.is_seen {
            let count = self.mutex.count().wrapping_add(1);
            // On a disk that is full from the first, turns that change nothing are not seen.
            let _ = file.write_all_at(&count.to_le_bytes(), 0);
        }
        let _ = fcntl_lock(file, FlockOperation::Unlock);
    }
}

/// The process that has a file locked, as the kernel lists it.
fn owner_of(path: &Path) -> Option<u32> {
    let found = fs::metadata(path).ok()?;
    let (device, inode) = (found.dev(), found.ino());
    // As in `1: POSIX ADVISORY WRITE 4711 fe:00:326269 0 EOF`.
    let file = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let words = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut owners = words.filter(|it| it.get(1) == Some(&"POSIX"));
    let pid = owners.find(|it| it.get(5) == Some(&file.as_str()))?.get(4)?.parse().ok()?;
    // One of another namespace has no number here.
    (pid > 0).then_some(pid)
}
