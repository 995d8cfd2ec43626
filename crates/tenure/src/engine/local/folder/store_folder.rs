//! Detects that the folder or its files are no longer those that were opened, because they were removed, moved or
//! replaced.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Stat, fstat, lstat};

use super::location::{CLIENTS, DATA};
use crate::error::StoreError;

/// Identifies a file, whatever its path. While the file is open, no other one gets its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        Ok(fstat(file)?.into())
    }

    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        Ok(lstat(path)?.into())
    }

    /// Whether this file is at a path now.
    pub(crate) fn is_at(self, path: &Path) -> bool {
        Self::at(path).is_ok_and(|found| found == self)
    }
}

impl From<Stat> for Identity {
    fn from(found: Stat) -> Self {
        Self { device: found.st_dev, inode: found.st_ino }
    }
}

pub(crate) struct StoreFolder {
    folder: PathBuf,
    clients: PathBuf,
    clients_identity: Identity,
    pub(crate) data_identity: Identity,
    // Kept open, so that no other files get their numbers.
    _clients: File,
    data: File,
    /// The root directory when the store was opened.
    root: Identity,
}

impl StoreFolder {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let clients = folder.join(CLIENTS);
        let (clients_file, data) = (File::open(&clients)?, File::open(folder.join(DATA))?);
        Ok(Self {
            folder: folder.to_owned(),
            clients,
            clients_identity: Identity::of(&clients_file)?,
            data_identity: Identity::of(&data)?,
            _clients: clients_file,
            data,
            root: Identity::at(Path::new("/"))?,
        })
    }

    /// False if the folder or its content was removed or moved.
    pub(crate) fn is_in_place(&self) -> bool {
        self.has_data_file() && self.clients_identity.is_at(&self.clients)
    }

    /// False if the file with the locks was removed. A move is not detected here.
    pub(crate) fn has_data_file(&self) -> bool {
        fstat(&self.data).is_ok_and(|found| found.st_nlink > 0)
    }

    pub(crate) fn ensure_in_place(&self) -> Result<(), StoreError> {
        if self.is_in_place() { Ok(()) } else { Err(self.missing_error()) }
    }

    /// The folder was replaced while this process still has the removed one open.
    pub(crate) fn replaced_error(&self) -> StoreError {
        StoreError::refused(format!(
            "the folder `{}` was removed and created again, and this process still has clients of the \
             removed one: drop them, and connect again",
            self.folder.display()
        ))
    }

    /// Why this process no longer finds the folder, as far as it can know.
    pub(crate) fn missing_error(&self) -> StoreError {
        let path = self.folder.display();
        StoreError::refused(match Identity::at(&self.clients) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => format!(
                "this process may no longer access the folder `{path}`, as after it dropped privileges: \
                 connect as the final user ({error})"
            ),
            _ if !self.root.is_at(Path::new("/")) => format!(
                "this process can no longer reach the folder `{path}`, because its root directory has \
                 changed: connect after the chroot, to a folder below the new root"
            ),
            _ => format!(
                "the folder `{path}`, or its content, was removed or moved while in use, and other \
                 processes may hold the same locks in a new one: start again"
            ),
        })
    }
}
