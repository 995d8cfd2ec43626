//! Programs that come together, in one folder, and that tests use besides the Redis servers.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::program::{ADVICE, is_program};

/// Some programs in one folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toolset {
    /// The database server: `postgres` and `initdb`.
    Postgres,
    /// The collector of metrics: `prometheus` and `promtool`.
    Prometheus,
    /// The browser: `chromium`.
    Chromium,
}

impl Toolset {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Postgres, Self::Prometheus, Self::Chromium];

    /// The environment variable that names the folder to the tests; a developer may set it to choose one.
    #[must_use]
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Postgres => "TENURE_TEST_POSTGRES",
            Self::Prometheus => "TENURE_TEST_PROMETHEUS",
            Self::Chromium => "TENURE_TEST_CHROMIUM",
        }
    }

    /// The programs that the folder must have.
    #[must_use]
    pub const fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Postgres => &["postgres", "initdb"],
            Self::Prometheus => &["prometheus", "promtool"],
            Self::Chromium => &["chromium"],
        }
    }

    /// The folder: the chosen one, or else an installed one.
    ///
    /// # Errors
    /// If there is none, or the chosen one lacks a program, as a sentence that a test panics with.
    pub fn find(self) -> Result<PathBuf, String> {
        let chosen = std::env::var_os(self.variable()).filter(|chosen| !chosen.is_empty());
        self.find_in(chosen.as_deref(), self.installed())
    }

    /// The folder of an installed one: on the PATH, or where Debian has PostgreSQL, the newest first.
    #[must_use]
    pub fn installed(self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let on_path = std::env::split_paths(&path);
        let elsewhere = match self {
            Self::Postgres => versions_in(Path::new("/usr/lib/postgresql")),
            Self::Prometheus | Self::Chromium => Vec::new(),
        };
        on_path.chain(elsewhere).find(|folder| self.is_in(folder))
    }

    /// Whether the folder has all of the programs.
    #[must_use]
    pub fn is_in(self, folder: &Path) -> bool {
        self.programs().iter().all(|name| is_program(&folder.join(name)))
    }

    fn find_in(
        self,
        chosen: Option<&OsStr>,
        installed: Option<PathBuf>,
    ) -> Result<PathBuf, String> {
        let Some(chosen) = chosen.map(Path::new) else {
            return installed.ok_or_else(|| format!("there is no {self} installed; {ADVICE}"));
        };
        if self.is_in(chosen) {
            return Ok(chosen.to_path_buf());
        }
        let (variable, programs) = (self.variable(), self.programs().join(" or "));
        let chosen = chosen.display();
        Err(format!("{variable} names {chosen}, which lacks {programs}; {ADVICE}"))
    }
}

impl fmt::Display for Toolset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "PostgreSQL",
            Self::Prometheus => "Prometheus",
            Self::Chromium => "Chromium",
        })
    }
}

/// The folders `<version>/bin` in this one, the newest version first.
fn versions_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut versions: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    versions.into_iter().map(|version| folder.join(version.to_string()).join("bin")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_toolset_is_an_error_with_a_remedy() {
        let missing = Toolset::Postgres.find_in(None, None).unwrap_err();
        assert_eq!(missing, format!("there is no PostgreSQL installed; {ADVICE}"));
    }

    #[test]
    fn a_chosen_folder_is_never_replaced() {
        let other = Some(PathBuf::from("/bin"));
        let wrong = Toolset::Prometheus.find_in(Some("/nowhere".as_ref()), other).unwrap_err();
        let start =
            "TENURE_TEST_PROMETHEUS names /nowhere, which lacks prometheus or promtool; run";
        assert!(wrong.starts_with(start), "{wrong}");
    }

    #[test]
    fn the_newest_version_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["9", "15", "10", "old"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let expected = ["15/bin", "10/bin", "9/bin"].map(|inner| folder.path().join(inner));
        assert_eq!(versions_in(folder.path()), expected);
    }
}
