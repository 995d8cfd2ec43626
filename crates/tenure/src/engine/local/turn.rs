//! One operation at a time, and a bound on waiting for it.
//!
//! LMDB has a mutex of its own, but whoever finds it taken sleeps until it is free: however long that
//! takes if its owner was stopped, and far longer than a transaction even if it was not, because
//! to wake a thread takes its time. So everyone takes this lock first, looks for it with open eyes for
//! a moment, then again and again, and gives up in time. It is a lock of the kind that a forked child
//! does not get and that the kernel frees with its process.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use rustix::fs::{FlockOperation, fcntl_lock};

use crate::clock;
use crate::core::moment::Moment;
use crate::error::Trouble;

/// Several transactions take less.
const MOMENT: Duration = Duration::from_micros(30);

/// How long to sleep before looking again.
const NAP: Duration = Duration::from_micros(100);

/// How long to wait for the turn.
#[derive(Clone, Copy)]
pub(super) enum Patience {
    /// For what is done again if it is refused, also by the thread that must tell losses in time.
    Short,
    /// For what somebody asked for once.
    Long,
}

impl Patience {
    const fn time(self) -> Duration {
        match self {
            Self::Short => Duration::from_millis(50),
            Self::Long => Duration::from_secs(1),
        }
    }
}

/// Whose turn it is, among the processes and among the threads of this one.
pub(super) struct Turns {
    path: PathBuf,
    file: Mutex<File>,
}

impl Turns {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join("turn");
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).open(&path)?;
        Ok(Self { path, file: Mutex::new(file) })
    }

    /// Waits for the turn. Refused, nothing was done.
    pub(super) fn take(&self, patience: Patience) -> Result<Turn<'_>, Trouble> {
        if let Some(turn) = self.try_take() {
            return Ok(turn);
        }
        let begun = clock::now();
        loop {
            if let Some(turn) = self.try_take() {
                return Ok(turn);
            }
            match clock::now().since(begun) {
                waited if waited < MOMENT => std::hint::spin_loop(),
                waited if waited < patience.time() => nap(),
                _ => return Err(self.refused(begun)),
            }
        }
    }

    fn try_take(&self) -> Option<Turn<'_>> {
        let file = match self.file.try_lock() {
            Ok(file) => file,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let taken = fcntl_lock(&*file, FlockOperation::NonBlockingLockExclusive);
        taken.is_ok().then_some(Turn(file))
    }

    fn refused(&self, begun: Moment) -> Trouble {
        let waited = clock::now().since(begun);
        // What is listed may change while it is read.
        let who = match (0..3).find_map(|_| owner_of(&self.path)) {
            Some(pid) => format!("process {pid} stands"),
            None => "another process stands".to_owned(),
        };
        Trouble::refused(format!(
            "{who} in the middle of an operation for more than {waited:.0?}: is it stopped, or the \
             machine overloaded? (`{}`)",
            self.path.display()
        ))
    }
}

/// Ended by the drop.
pub(super) struct Turn<'a>(MutexGuard<'a, File>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = fcntl_lock(&*self.0, FlockOperation::Unlock);
    }
}

#[expect(clippy::disallowed_methods, reason = "for a tenth of a millisecond, like the operation")]
fn nap() {
    std::thread::sleep(NAP);
}

/// The process that has a file locked, as the kernel lists it.
fn owner_of(path: &Path) -> Option<u32> {
    let inode = format!(":{}", fs::metadata(path).ok()?.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let words = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // As in `1: POSIX ADVISORY WRITE 4711 fe:00:326269 0 EOF`.
    let mut owners = words.filter(|it| it.get(1) == Some(&"POSIX"));
    owners.find(|it| it.get(5).is_some_and(|file| file.ends_with(&inode)))?.get(4)?.parse().ok()
}
