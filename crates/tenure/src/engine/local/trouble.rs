//! What can go wrong with the file, in sentences that name the folder.

use std::path::Path;

use heed::{Error, MdbError};

use super::bytes::Unreadable;
use crate::error::Trouble;

/// Trouble before the commit, or in a commit that certainly did nothing.
pub(super) fn of_map(folder: &Path, error: &Error) -> Trouble {
    Trouble::refused(sentence(folder, error))
}

/// Trouble in the commit: unless there was no room, it may have come after the deed (I6).
pub(super) fn of_commit(folder: &Path, error: &Error) -> Trouble {
    if is_full(error) || has_no_space(error) {
        of_map(folder, error)
    } else {
        Trouble::unknown(sentence(folder, error))
    }
}

pub(super) fn of_files(folder: &Path, error: &std::io::Error) -> Trouble {
    Trouble::refused(format!("the store in `{}` cannot be used: {error}", folder.display()))
}

/// A record that this program did not write, or that somebody has changed.
pub(super) fn of_record(folder: &Path, what: &str, why: Unreadable) -> Trouble {
    Trouble::refused(format!(
        "the record of {what} in `{}` cannot be read, because {why}: delete the folder when \
         nobody uses it",
        folder.display()
    ))
}

fn sentence(folder: &Path, error: &Error) -> String {
    let path = folder.display();
    if is_full(error) {
        format!("the store in `{path}` is full: it has room for 1 GiB of locks and waiters")
    } else if has_no_space(error) {
        format!("there is no space left for the store in `{path}`")
    } else {
        format!("the store in `{path}` cannot be used: {error}")
    }
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Mdb(MdbError::MapFull))
}

fn has_no_space(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == std::io::ErrorKind::StorageFull)
}
