//! What can go wrong with the file, in sentences that name the folder.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use heed::{Env, Error, MdbError};
use rustix::io::Errno;

use super::storage::bytes::Unreadable;
use crate::error::StoreError;

/// StoreError before the commit, or in a commit that certainly did nothing.
pub(super) fn of_map(folder: &Path, error: &Error) -> StoreError {
    let trouble = StoreError::refused(sentence(folder, error));
    let is_lasting = match error {
        Error::Io(error) => is_lasting(error),
        Error::Mdb(error) => {
            matches!(error, MdbError::Invalid | MdbError::VersionMismatch | MdbError::Corrupted)
        }
        _ => false,
    };
    if is_lasting { trouble.lasting() } else { trouble }
}

/// What a person must mend. A disk that is full, or a limit on memory or files, may pass.
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

/// StoreError in the commit: it may have come after the deed (I6), but only in the very last write.
/// LMDB gives an environment up in which that one failed; in one that goes on, nothing was done.
pub(super) fn of_commit(env: &Env, folder: &Path, error: &Error) -> StoreError {
    if env.write_txn().is_ok() {
        of_map(folder, error)
    } else {
        StoreError::unknown(sentence(folder, error))
    }
}

/// There is no room for what would grow; what does not grow is done.
pub(super) fn of_full(folder: &Path, mark: usize) -> StoreError {
    let (path, room) = (folder.display(), mark >> 20);
    StoreError::refused(format!(
        "the store in `{path}` is full: it has room for {room} MiB of locks and waiters, a \
         quarter of it for one lock"
    ))
}

/// Nobody gets on: whoever has the turn does nothing with it.
pub(super) fn of_stuck(file: &Path, owner: Option<u32>, still: Duration) -> StoreError {
    let who = match owner {
        Some(pid) if pid == std::process::id() => "another thread of this process".to_owned(),
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    };
    StoreError::refused(format!(
        "{who} stands in the middle of an operation, and nothing has changed for {still:.0?}: is it \
         stopped, or the machine overloaded? (`{}`)",
        file.display()
    ))
}

/// Others get on, and leave nobody a turn.
pub(super) fn of_crowd(file: &Path, waited: Duration) -> StoreError {
    StoreError::refused(format!(
        "the store is busy: others had every guard for {waited:.0?}; let fewer use it at once, or try \
         again (`{}`)",
        file.display()
    ))
}

pub(super) fn of_files(folder: &Path, error: &std::io::Error) -> StoreError {
    let hint = if error.kind() == ErrorKind::FileTooLarge { " (see `ulimit -f`)" } else { "" };
    let what = format!("the store in `{}` cannot be used: {error}{hint}", folder.display());
    let trouble = StoreError::refused(what);
    if is_lasting(error) { trouble.lasting() } else { trouble }
}

/// A record that this program did not write, or that somebody has changed.
pub(super) fn of_record(folder: &Path, what: &str, why: Unreadable) -> StoreError {
    StoreError::refused(format!(
        "the record of {what} in `{}` cannot be read, because {why}: delete the folder when \
         nobody uses it",
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

/// A write that fits in part is an I/O error to LMDB.
fn is_short_write(error: &Error) -> bool {
    matches!(error, Error::Io(error) if Errno::from_io_error(error) == Some(Errno::IO))
}
