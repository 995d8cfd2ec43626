//! Where a store is: the files that were there when it was opened, not others that somebody has
//! made in their place.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Stat, fstat, lstat};

use super::location::{CLIENTS, DATA};
use crate::error::StoreError;

/// Which file it is, whatever its path. While it is open, no other one gets its numbers.
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

    /// Whether this one is at a path now.
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
    // Open, so that no others get their numbers.
    _clients: File,
    data: File,
    /// What this process had as `/`.
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

    /// False if the folder was removed or moved away, or what is in it.
    pub(crate) fn is_there(&self) -> bool {
        self.has_data() && self.clients_identity.is_at(&self.clients)
    }

    /// False if the file with the locks was removed. Whether it was moved is not seen here.
    pub(crate) fn has_data(&self) -> bool {
        fstat(&self.data).is_ok_and(|found| found.st_nlink > 0)
    }

    pub(crate) fn ensure_there(&self) -> Result<(), StoreError> {
        if self.is_there() { Ok(()) } else { Err(self.missing()) }
    }

    /// For whoever wants what is there now, while this one is still open.
    pub(crate) fn in_use_here(&self) -> StoreError {
        StoreError::refused(format!(
            "the folder `{}` was removed and made anew, and this process still has clients of the \
             removed one: drop them, and connect again",
            self.folder.display()
        ))
    }

    /// Why this process does not find the folder any more, as far as it can know.
    pub(crate) fn missing(&self) -> StoreError {
        let path = self.folder.display();
        StoreError::refused(match Identity::at(&self.clients) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => format!(
                "this process is not allowed to look into the folder `{path}` any more, as after it \
                 gave up privileges: connect as the user that it is to be ({error})"
            ),
            _ if !self.root.is_at(Path::new("/")) => format!(
                "this process does not see the folder `{path}` any more, because it has another root \
                 directory since: connect after the chroot, to a folder that is in there"
            ),
            _ => format!(
                "the folder `{path}`, or what is in it, was removed or moved while in use, and others \
                 may hold the same locks in a new one: start again"
            ),
        })
    }
}
