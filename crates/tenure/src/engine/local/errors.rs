//! Errors of the files and of the store's mutex, in sentences that name the folder.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use heed::{Env, Error, MdbError};
use rustix::io::Errno;

use super::storage::bytes::Unreadable;
use crate::error::StoreError;

/// An error before the commit, or in a commit that certainly had no effect.
pub(super) fn of_map(folder: &Path, error: &Error) -> StoreError {
    let refused = StoreError::refused(sentence(folder, error));
    let is_lasting = match error {
        Error::Io(error) => is_lasting(error),
        Error::Mdb(error) => {
            matches!(error, MdbError::Invalid | MdbError::VersionMismatch | MdbError::Corrupted)
        }
        _ => false,
    };
    if is_lasting { refused.lasting() } else { refused }
}

/// Whether a person must act. A full disk, or a limit on memory or files, may be temporary.
fn is_lasting(error: &std::io::Error) -> bool {
    let kinds = [
        ErrorKind::FileTooLarge,
        ErrorKind::InvalidInput,
        ErrorKind::IsADirectory,
        ErrorKind::NotADirectory,
        ErrorKind::PermissionDenied,
        ErrorKind::ReadOnlyFilesystem,
    ];
    let errors = [Errno::SPIPE, Errno::LOOP, Errno::NXIO];
    kinds.contains(&error.kind())
        || Errno::from_io_error(error).is_some_and(|error| errors.contains(&error))
}

/// An error in the commit: it may have taken effect (I6), but only if the very last write failed. After that LMDB
/// refuses further transactions; if it still accepts one, the commit had no effect.
pub(super) fn of_commit(env: &Env, folder: &Path, error: &Error) -> StoreError {
    if env.write_txn().is_ok() {
        of_map(folder, error)
    } else {
        StoreError::unknown(sentence(folder, error))
    }
}

/// The quota is used up: operations that grow a record are refused, others go on.
pub(super) fn of_full(folder: &Path, limit: usize) -> StoreError {
    let (path, quota) = (folder.display(), limit >> 20);
    StoreError::refused(format!(
        "the store in `{path}` is full: its quota for locks and waiters is {quota} MiB, a quarter of \
         it for one lock"
    ))
}

/// No progress: the holder of the store's mutex does not finish its operation.
pub(super) fn of_stall(file: &Path, owner: Option<u32>, stalled: Duration) -> StoreError {
    let owner = match owner {
        Some(pid) if pid == std::process::id() => "another thread of this process".to_owned(),
        Some(pid) => format!("pid {pid}"),
        None => "another process".to_owned(),
    };
    StoreError::refused(format!(
        "the store's mutex has been held by {owner} for {stalled:.0?} without progress: is it stopped, \
         or the machine overloaded? (`{}`)",
        file.display()
    ))
}

/// Other operations make progress, and this one did not get the store's mutex in time.
pub(super) fn of_contention(file: &Path, waited: Duration) -> StoreError {
    StoreError::refused(format!(
        "the store is busy: other operations have held its mutex for {waited:.0?}; let fewer clients \
         use it at once, or try again (`{}`)",
        file.display()
    ))
}

pub(super) fn of_files(folder: &Path, error: &std::io::Error) -> StoreError {
    let hint = if error.kind() == ErrorKind::FileTooLarge { " (see `ulimit -f`)" } else { "" };
    let what = format!("the store in `{}` cannot be used: {error}{hint}", folder.display());
    let refused = StoreError::refused(what);
    if is_lasting(error) { refused.lasting() } else { refused }
}

/// A record that this program did not write, or that another program has changed.
pub(super) fn of_record(folder: &Path, what: &str, why: Unreadable) -> StoreError {
    StoreError::refused(format!(
        "the record of {what} in `{}` cannot be read, because {why}: delete the folder when no \
         process uses it",
        folder.display()
    ))
}

fn sentence(folder: &Path, error: &Error) -> String {
    let path = folder.display();
    if let Error::Io(error) = error
        && error.kind() == ErrorKind::FileTooLarge
    {
        format!("the store in `{path}` may not grow (see `ulimit -f`): {error}")
    } else if has_no_space(error) {
        format!("there is no space left for the store in `{path}`: {error}")
    } else if is_short_write(error) {
        format!("the store in `{path}` cannot be written, as when its disk is full: {error}")
    } else {
        format!("the store in `{path}` cannot be used: {error}")
    }
}

fn has_no_space(error: &Error) -> bool {
    match error {
        Error::Io(error) => error.kind() == ErrorKind::StorageFull,
        error => matches!(error, Error::Mdb(MdbError::MapFull)),
    }
}

/// LMDB reports a partial write as an I/O error.
fn is_short_write(error: &Error) -> bool {
    matches!(error, Error::Io(error) if Errno::from_io_error(error) == Some(Errno::IO))
}
