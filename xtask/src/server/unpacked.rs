//! Archives that are unpacked below `target/`: nothing is installed, and the next run finds them there.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sh::{self, Failure, Outcome};

/// A folder below `target/`, filled once.
pub(super) struct Unpacked {
    /// The name of the folder: it has the version, where that is pinned, so that a newer pin is fetched anew.
    pub(super) name: String,
}

impl Unpacked {
    /// Its path, relative to the workspace.
    pub(super) fn place(&self) -> String {
        format!("target/tenure-servers/{}", self.name)
    }

    /// What `find` finds in the folder, after `fetch` has filled it if needed.
    pub(super) fn get(
        &self,
        find: impl Fn(&Path) -> Option<PathBuf>,
        fetch: impl FnOnce(&Path) -> Outcome,
    ) -> Outcome<PathBuf> {
        let folder = sh::root().join(self.place());
        if let Some(found) = find(&folder) {
            sh::say(format!("using what is unpacked in {}", self.place()));
            return Ok(found);
        }
        // Built in another folder and renamed when complete, so that an interrupted run leaves no partial one.
        let draft = folder.with_file_name(format!("draft-{}-{}", self.name, std::process::id()));
        let outcome = create(&draft).and_then(|()| fetch(&draft)).and_then(|()| {
            find(&draft).ok_or_else(|| self.is_empty())?;
            settle(&draft, &folder, &find)
        });
        let _ = fs::remove_dir_all(&draft);
        outcome?;
        find(&folder).ok_or_else(|| self.is_empty())
    }

    fn is_empty(&self) -> Failure {
        Failure::new(format!("the archive {} does not contain what is expected of it.", self.name))
    }
}

fn create(draft: &Path) -> Outcome {
    fs::create_dir_all(draft).map_err(|error| cannot_write(draft, &error))
}

/// Moves the complete folder into place; if a concurrent run was faster, its copy is used.
fn settle(draft: &Path, folder: &Path, find: impl Fn(&Path) -> Option<PathBuf>) -> Outcome {
    match fs::rename(draft, folder) {
        Err(error) if find(folder).is_none() => Err(cannot_write(folder, &error)),
        _ => Ok(()),
    }
}

/// The only file in the folder whose name ends so.
pub(super) fn first_with_extension(folder: &Path, extension: &str) -> Outcome<PathBuf> {
    let files = fs::read_dir(folder).map_err(|error| cannot_write(folder, &error))?;
    let mut paths = files.flatten().map(|file| file.path());
    paths
        .find(|path| path.extension().is_some_and(|end| end == extension))
        .ok_or_else(|| Failure::new(format!("the download succeeded, but left no .{extension}.")))
}

pub(super) fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("could not write {}: {error}.", path.display()))
}
