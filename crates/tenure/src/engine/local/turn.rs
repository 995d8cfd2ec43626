//! One transaction at a time, without falling asleep over it.
//!
//! LMDB has a mutex of its own, which is what is relied on; but a thread that finds it taken goes
//! to sleep at once, and to wake it takes ten times as long as a transaction does. So everyone
//! first looks for a moment whether this lock becomes free. It is a courtesy, and nobody waits for
//! it any longer: whoever has it may have been stopped, or have left it to a forked child.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::clock;
use crate::sync::lock;

/// Several transactions take less.
const MOMENT: Duration = Duration::from_micros(30);

/// Whose turn it is, among the processes and among the threads of this one.
pub(super) struct Turns(Mutex<File>);

impl Turns {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).open(folder.join("turn"))?;
        Ok(Self(Mutex::new(file)))
    }

    /// The turn, if it comes within a moment.
    pub(super) fn take(&self) -> Option<Turn<'_>> {
        let file = lock(&self.0);
        let mut end = None;
        while flock(&*file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if clock::now() >= *end.get_or_insert_with(|| clock::now() + MOMENT) {
                return None;
            }
            std::hint::spin_loop();
        }
        Some(Turn(file))
    }
}

/// Ended by the drop.
pub(super) struct Turn<'a>(MutexGuard<'a, File>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = flock(&*self.0, FlockOperation::Unlock);
    }
}
