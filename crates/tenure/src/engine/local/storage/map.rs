//! Opens the file that all clients map: the one place with `unsafe` code.

use std::os::fd::BorrowedFd;
use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::engine::local::folder::DATA;

/// All records, under keys that begin with what they are.
pub(crate) type Records = Database<Bytes, Bytes>;

/// How large the file may become. It takes only the room of what is in it.
pub(crate) const BYTES: usize = 1 << 30;

/// Opens the environment in this folder. The caller has checked that the folder belongs to this
/// user alone, and opens it once per process.
#[expect(unsafe_code, reason = "mapping a file is unsafe, because others might change it")]
pub(crate) fn open(folder: &Path, bytes: usize) -> heed::Result<(Env, Records)> {
    let mut options = EnvOpenOptions::new();
    options.map_size(bytes);
    // SAFETY: without syncs the file may be broken after a power failure, but then it is of an
    // earlier boot, and was removed unread (`boot.rs`). While the system runs, everyone sees the
    // same pages, synced or not. Neither flag affects locking.
    unsafe { options.flags(EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC) };
    // SAFETY: a map is undefined behaviour if its file changes in ways that LMDB does not know.
    // Only this user can write in the folder (`folder.rs`), only LMDB writes the two files, and
    // its lock file is in use. It is opened once per process (`registry.rs`), because closing a
    // second descriptor would drop the lock of the first. No transaction outlives an operation.
    // A process that is killed within one leaves a robust mutex, which the next one repairs.
    let env = unsafe { options.open(folder) }?;
    let mut transaction = env.write_txn()?;
    let records = env.create_database(&mut transaction, None)?;
    transaction.commit()?;
    keep_from_children(folder)?;
    Ok((env, records))
}

/// Processes that are started do not get the file: LMDB leaves it open for them.
#[expect(unsafe_code, reason = "LMDB has the file, and nobody else can lend it")]
fn keep_from_children(folder: &Path) -> std::io::Result<()> {
    let data = folder.join(DATA);
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|number| number.parse().ok());
        // One that was closed meanwhile is not ours.
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
