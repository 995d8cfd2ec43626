//! The folder that the clients share: which one, and that it is this user's alone.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::file_system::{self, Disk};
use crate::error::{Error, Invalid, StoreError};

/// The file that has all locks, as LMDB names it.
pub(crate) const DATA: &str = "data.mdb";

/// Where the sockets and lock files of the clients are.
pub(crate) const CLIENTS: &str = "clients";

/// A socket's path has 108 bytes in all; the rest is for `/clients/2147483647.sock` and its end.
const MAX_BYTES: usize = 80;

/// The folder of a URL that names none: the same one for a shell and for a cron job, or they would
/// not keep each other out. So it is not in XDG_RUNTIME_DIR, which a cron job does not have. Where
/// somebody sets XDG_STATE_HOME, it is to be set for both.
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

/// Makes the folder if it is missing, and refuses one that others could write in: whoever can
/// write there can have every lock, and crash everyone who maps the file.
pub(crate) fn prepare(folder: &Path) -> Result<PathBuf, Error> {
    if !folder.is_absolute() {
        let sentence = format!("the folder `{}` must be an absolute path", folder.display());
        return Err(Invalid::new(sentence).into());
    }
    make(folder).map_err(|error| trouble(folder, "cannot be made", &error))?;
    let folder = folder.canonicalize().map_err(|error| trouble(folder, "is not found", &error))?;
    if folder.as_os_str().len() > MAX_BYTES {
        let (length, path) = (folder.as_os_str().len(), folder.display());
        let sentence = format!(
            "the path of the folder may have at most {MAX_BYTES} bytes, because sockets lie in \
             it, and `{path}` has {length}"
        );
        return Err(Invalid::new(sentence).into());
    }
    check(&folder)?;
    check_disk(&folder)?;
    let clients = folder.join(CLIENTS);
    make(&clients).map_err(|error| trouble(&clients, "cannot be made", &error))?;
    check(&clients)?;
    Ok(folder)
}

fn make(folder: &Path) -> std::io::Result<()> {
    // An existing one that is no folder is told by the check.
    if folder.exists() {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn check(folder: &Path) -> Result<(), Error> {
    // Not followed: a link here would be one that somebody else may turn.
    let found = fs::symlink_metadata(folder);
    let found = found.map_err(|error| trouble(folder, "cannot be looked at", &error))?;
    let path = folder.display();
    let sentence = if !found.is_dir() {
        format!("`{path}` is not a folder")
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        format!("the folder `{path}` belongs to another user: name one of your own")
    } else if found.mode() & 0o077 != 0 {
        let mode = found.mode() & 0o777;
        format!(
            "the folder `{path}` is open to others (mode {mode:o}): name one that is not there yet, \
             or, if nobody else needs it, close it with `chmod 700`"
        )
    } else {
        return Ok(());
    };
    Err(Invalid::new(sentence).into())
}

fn check_disk(folder: &Path) -> Result<(), Error> {
    let found = rustix::fs::statfs(folder);
    let found = found.map_err(|error| trouble(folder, "cannot be looked at", &error.into()))?;
    Ok(check_kind(folder, file_system::kind_of(&found))?)
}

/// A disk of several machines would let each of them have every lock. So might one that a program
/// makes: what lies behind it is not known, and two maps of one file need not show the same.
fn check_kind(folder: &Path, disk: Disk) -> Result<(), Invalid> {
    let (kind, why) = match disk {
        Disk::Shared(kind) => (kind, "where machines do not see each other's locks"),
        Disk::Made(kind) => (kind, "where it is not sure that processes see each other's locks"),
        Disk::Local(_) | Disk::Unknown(_) => return Ok(()),
    };
    Err(Invalid::new(format!(
        "the folder `{}` lies on {kind}, {why}: name one on a disk of this machine, as in \
         `local:///var/lib/app/locks`, or a server",
        folder.display()
    )))
}

fn trouble(folder: &Path, what: &str, error: &std::io::Error) -> Error {
    let sentence = format!("the folder `{}` {what}: {error}", folder.display());
    Error::Connect { trouble: StoreError::refused(sentence).lasting() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I1: what may not show everyone the same is refused, before anything is made there.
    #[test]
    fn a_disk_of_others_or_of_a_program_is_refused() {
        let check = |disk| check_kind(Path::new("/x"), disk).map_err(|refused| refused.to_string());
        let refused = check(Disk::Shared("NFS")).unwrap_err();
        assert!(refused.contains("`/x` lies on NFS, where machines"), "{refused}");
        for made in ["FUSE", "a folder of VirtualBox"] {
            let refused = check(Disk::Made(made)).unwrap_err();
            assert!(
                refused.contains(&format!("`/x` lies on {made}, where it is not")),
                "{refused}"
            );
        }
        check(Disk::Local("ext")).unwrap();
        check(Disk::Unknown(7)).unwrap();
    }
}
