//! The blocks of LMDB's lock file are there before it is mapped: whoever wrote to a map that the
//! disk has no block for would be killed by a signal (SIGBUS), instead of being told.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// What LMDB needs for its mutexes and 126 readers.
pub(crate) const BYTES: u64 = 8192;

/// Makes the lock file with its blocks, while nobody else begins. The other file needs none ahead:
/// LMDB writes to it by calls, which fail as calls do.
pub(crate) fn reserve(lock_file: &Path) -> io::Result<()> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(lock_file)?;
    match fallocate(&file, FallocateFlags::empty(), 0, BYTES) {
        // Shorter, it is in nobody's use: LMDB has not begun with it.
        Err(Errno::OPNOTSUPP) if file.metadata()?.len() < BYTES => {
            file.write_all_at(&[0; BYTES as usize], 0)
        }
        Err(Errno::OPNOTSUPP) => Ok(()),
        result => Ok(result?),
    }
}
