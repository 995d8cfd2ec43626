//! Allocates the disk blocks of LMDB's lock file before it is mapped: a write to a mapped page without a block on a
//! full disk would kill the process (SIGBUS) instead of returning an error.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// What LMDB needs for its mutexes and 126 readers.
pub(crate) const BYTES: u64 = 8192;

/// Creates the lock file with its blocks. The caller holds the store's mutex. The data file needs none in advance:
/// LMDB writes to it with system calls, which return errors.
pub(crate) fn reserve(lock_file: &Path) -> io::Result<()> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(lock_file)?;
    match fallocate(&file, FallocateFlags::empty(), 0, BYTES) {
        // A shorter file is not in use: LMDB has not initialised it.
        Err(Errno::OPNOTSUPP) if file.metadata()?.len() < BYTES => {
            file.write_all_at(&[0; BYTES as usize], 0)
        }
        Err(Errno::OPNOTSUPP) => Ok(()),
        result => Ok(result?),
    }
}
