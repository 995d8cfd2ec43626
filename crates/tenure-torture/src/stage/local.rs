//! A file of this machine: no server, so clients alone suffer.

use std::path::{Path, PathBuf};

use super::{Stage, Usage};
use crate::fault::Fault;

pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(folder: &Path) -> Self {
        Self(folder.join("locks"))
    }
}

impl Stage for Folder {
    fn url(&self) -> String {
        format!("local://{}", self.0.display())
    }

    fn faults(&self) -> Vec<Fault> {
        Vec::new()
    }

    fn excuses(&self, _: Fault) -> bool {
        false
    }

    fn inject(&mut self, fault: Fault, _: &mut fastrand::Rng) -> bool {
        unreachable!("{fault} is no fault of a file");
    }

    fn usage(&self) -> Usage {
        let size = |path: PathBuf| std::fs::metadata(path).map_or(0, |it| it.len());
        let files = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        Usage { connections: 0, bytes: files.map(|file| size(file.path())).sum() }
    }
}
