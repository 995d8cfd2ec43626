//! Which folder the clients share, and whether it belongs to this user alone.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::file_system::{self, FileSystem};
use crate::error::{Error, Invalid, StoreError};

/// The file with all locks, as LMDB names it.
pub(crate) const DATA: &str = "data.mdb";

/// Where the sockets and lock files of the clients are.
pub(crate) const CLIENTS: &str = "clients";

/// A socket's path has 108 bytes in all; the rest is for `/clients/2147483647.sock` and its terminator.
const MAX_BYTES: usize = 80;

/// The folder of a URL that names none. A shell and a cron job must get the same one, or they would not exclude each
/// other; therefore it is not in XDG_RUNTIME_DIR, which a cron job does not have. XDG_STATE_HOME, if it is set, must
/// be set for both.
pub(crate) fn default_folder() -> Result<PathBuf, Invalid> {
    let from = |variable: &str, below: &str| {
        let base = PathBuf::from(std::env::var_os(variable)?);
        base.is_absolute().then(|| base.join(below))
    };
    from("XDG_STATE_HOME", "tenure").or_else(|| from("HOME", ".local/state/tenure")).ok_or_else(
        || {
            Invalid::new(
                "neither XDG_STATE_HOME nor HOME is set: name a folder, as in \
                 `local:///run/app/locks`",
            )
        },
    )
}

/// Creates the folder if it does not exist, and refuses one that other users can write in: such a user could take
/// every lock, and crash every process that maps the file.
pub(crate) fn prepare(folder: &Path) -> Result<PathBuf, Error> {
    if !folder.is_absolute() {
        let sentence = format!("the folder `{}` must be an absolute path", folder.display());
        return Err(Invalid::new(sentence).into());
    }
    create_private(folder).map_err(|error| connect_error(folder, "cannot be created", &error))?;
    let folder =
        folder.canonicalize().map_err(|error| connect_error(folder, "is not found", &error))?;
    if folder.as_os_str().len() > MAX_BYTES {
        let (length, path) = (folder.as_os_str().len(), folder.display());
        let sentence = format!(
            "the path of the folder may have at most {MAX_BYTES} bytes, because it contains sockets, \
             and `{path}` has {length}"
        );
        return Err(Invalid::new(sentence).into());
    }
    check_private(&folder)?;
    check_file_system(&folder)?;
    let clients = folder.join(CLIENTS);
    create_private(&clients)
        .map_err(|error| connect_error(&clients, "cannot be created", &error))?;
    check_private(&clients)?;
    Ok(folder)
}

fn create_private(folder: &Path) -> std::io::Result<()> {
    // If it exists but is not a folder, `check_private` reports it.
    if folder.exists() {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn check_private(folder: &Path) -> Result<(), Error> {
    // Symbolic links are not followed: another user might redirect them.
    let found = fs::symlink_metadata(folder);
    let found = found.map_err(|error| connect_error(folder, "cannot be examined", &error))?;
    let path = folder.display();
    let sentence = if !found.is_dir() {
        format!("`{path}` is not a folder")
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        format!("the folder `{path}` belongs to another user: name one of your own")
    } else if found.mode() & 0o077 != 0 {
        let mode = found.mode() & 0o777;
        format!(
            "the folder `{path}` is accessible to other users (mode {mode:o}): name one that does not \
             exist yet, or, if no other user needs it, close it with `chmod 700`"
        )
    } else {
        return Ok(());
    };
    Err(Invalid::new(sentence).into())
}

fn check_file_system(folder: &Path) -> Result<(), Error> {
    let found = rustix::fs::statfs(folder);
    let found =
        found.map_err(|error| connect_error(folder, "cannot be examined", &error.into()))?;
    Ok(check_kind(folder, file_system::kind_of(&found))?)
}

/// On a file system of several machines, each of them could take every lock (I1). The same holds for one that a
/// program provides: its implementation is unknown, and two maps of one file need not show the same bytes.
fn check_kind(folder: &Path, file_system: FileSystem) -> Result<(), Invalid> {
    let (kind, why) = match file_system {
        FileSystem::Shared(kind) => (kind, "where machines do not see each other's locks"),
        FileSystem::Virtual(kind) => (kind, "where processes may not see each other's locks"),
        FileSystem::Local(_) | FileSystem::Unknown(_) => return Ok(()),
    };
    Err(Invalid::new(format!(
        "the folder `{}` is on {kind}, {why}: name one on a disk of this machine, as in \
         `local:///var/lib/app/locks`, or a server",
        folder.display()
    )))
}

fn connect_error(folder: &Path, what: &str, error: &std::io::Error) -> Error {
    let sentence = format!("the folder `{}` {what}: {error}", folder.display());
    Error::Connect { error: StoreError::refused(sentence).lasting() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I1: a file system that may show clients different bytes is refused, before anything is created there.
    #[test]
    fn a_shared_or_virtual_file_system_is_refused() {
        let check = |kind| check_kind(Path::new("/x"), kind).map_err(|refused| refused.to_string());
        let refused = check(FileSystem::Shared("NFS")).unwrap_err();
        assert!(refused.contains("`/x` is on NFS, where machines"), "{refused}");
        for kind in ["FUSE", "a VirtualBox shared folder"] {
            let refused = check(FileSystem::Virtual(kind)).unwrap_err();
            assert!(refused.contains(&format!("`/x` is on {kind}, where processes")), "{refused}");
        }
        check(FileSystem::Local("ext")).unwrap();
        check(FileSystem::Unknown(7)).unwrap();
    }
}
