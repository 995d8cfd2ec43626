//! Where the server's program is: named by `TENURE_TEST_SERVER`, or on the PATH.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The environment variable that names the program; `cargo xtask test` sets it.
pub const VARIABLE: &str = "TENURE_TEST_SERVER";

/// The programs that will do, the more common one first.
const NAMES: [&str; 2] = ["redis-server", "valkey-server"];

/// There is no server to test against.
#[derive(Debug, PartialEq, Eq)]
pub struct Missing {
    /// The program that was chosen but is not there; none if the PATH was searched.
    chosen: Option<PathBuf>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.chosen {
            Some(chosen) => {
                write!(f, "{VARIABLE} names {}, which is not a program; ", chosen.display())?;
            }
            None => f.write_str("there is no redis-server or valkey-server on the PATH; ")?,
        }
        f.write_str("run the tests with `cargo xtask test`, which gets a server for them")
    }
}

impl std::error::Error for Missing {}

/// The program named by the environment.
///
/// # Errors
///
/// [`Missing`] if there is none; its message says what to do.
pub fn from_env() -> Result<PathBuf, Missing> {
    find(std::env::var_os(VARIABLE).as_deref(), std::env::var_os("PATH").as_deref())
}

/// The program `chosen`, or else the first that the folders in `path` hold.
///
/// # Errors
///
/// [`Missing`] if there is none, or if the chosen one is no program: a choice is never replaced.
pub fn find(chosen: Option<&OsStr>, path: Option<&OsStr>) -> Result<PathBuf, Missing> {
    if let Some(chosen) = chosen.filter(|chosen| !chosen.is_empty()) {
        let chosen = PathBuf::from(chosen);
        return if is_program(&chosen) {
            Ok(chosen)
        } else {
            Err(Missing { chosen: Some(chosen) })
        };
    }
    let folders = || std::env::split_paths(path.unwrap_or_default());
    NAMES
        .iter()
        .find_map(|name| folders().map(|folder| folder.join(name)).find(|file| is_program(file)))
        .ok_or(Missing { chosen: None })
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}
