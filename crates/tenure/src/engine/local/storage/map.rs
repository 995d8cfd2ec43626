//! Opens the file that all clients map: the only `unsafe` code of this engine.

use std::os::fd::BorrowedFd;
use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::engine::local::folder::DATA;

/// All records; the first byte of a key is the kind of the record.
pub(crate) type Records = Database<Bytes, Bytes>;

/// The maximum size of the file. It takes only as much disk space as its content.
pub(crate) const BYTES: usize = 1 << 30;

/// Opens the environment in this folder. The caller has checked that the folder belongs to this
/// user alone, and opens it once per process.
#[expect(unsafe_code, reason = "mapping a file is unsafe, because other processes might change it")]
pub(crate) fn open(folder: &Path, bytes: usize) -> heed::Result<(Env, Records)> {
    let mut options = EnvOpenOptions::new();
    options.map_size(bytes);
    // SAFETY: without syncs the file may be corrupt after a power failure, but then it is from an
    // earlier boot, and was removed unread (`folder/boot.rs`). While the system runs, all processes
    // see the same pages, synced or not. Neither flag affects locking.
    unsafe { options.flags(EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC) };
    // SAFETY: a map is undefined behaviour if its file changes in ways that LMDB does not know.
    // Only this user can write in the folder (`folder/location.rs`), only LMDB writes the two files,
    // and its lock file is in use. It is opened once per process (`registry.rs`), because closing a
    // second descriptor would drop the lock of the first. No transaction outlives an operation.
    // A process that is killed within one leaves a robust mutex, which the next process repairs.
    let env = unsafe { options.open(folder) }?;
    let mut transaction = env.write_txn()?;
    let records = env.create_database(&mut transaction, None)?;
    transaction.commit()?;
    keep_from_children(folder)?;
    Ok((env, records))
}

/// Sets close-on-exec on the file, which LMDB does not: child processes must not inherit it.
#[expect(unsafe_code, reason = "LMDB owns the descriptor, and does not lend it")]
fn keep_from_children(folder: &Path) -> std::io::Result<()> {
    let data = folder.join(DATA);
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|number| number.parse().ok());
        // A descriptor that was closed meanwhile is not the one we search.
        if let (Some(number), Ok(target)) = (number, std::fs::read_link(entry.path()))
            && target == data
        {
            // SAFETY: it is open as long as the environment, which the caller has just opened
            // and has not closed, and only a flag of it is changed.
            let file = unsafe { BorrowedFd::borrow_raw(number) };
            fcntl_setfd(file, FdFlags::CLOEXEC)?;
        }
    }
    Ok(())
}
