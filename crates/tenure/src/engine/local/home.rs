//! Where the clients of a store are: the folder that was there when it was opened, not another one
//! that somebody has made in its place.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::Trouble;

pub(super) struct Home {
    path: PathBuf,
    // Open, so that no other folder gets its number.
    folder: File,
}

impl Home {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        Ok(Self { folder: File::open(&path)?, path })
    }

    /// False if the folder was removed or moved away.
    pub(super) fn is_there(&self) -> bool {
        is_at(&self.folder, &self.path)
    }

    pub(super) fn ensure_there(&self) -> Result<(), Trouble> {
        if self.is_there() {
            return Ok(());
        }
        Err(Trouble::refused(format!(
            "the folder `{}` was removed or moved while in use, and others may hold the same locks \
             in a new one: start again",
            self.path.display()
        )))
    }
}

/// Whether what is at this path now is what we have open.
pub(super) fn is_at(ours: &File, path: &Path) -> bool {
    let identity = |found: &Metadata| (found.dev(), found.ino());
    let (ours, found) = (ours.metadata(), fs::symlink_metadata(path));
    matches!((&ours, &found), (Ok(ours), Ok(found)) if identity(ours) == identity(found))
}
