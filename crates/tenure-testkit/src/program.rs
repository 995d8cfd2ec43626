//! Where a server's program is: named by a variable such as `TENURE_TEST_REDIS`, or on the PATH.
//!
//! Every failure is a sentence that a test panics with.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::flavor::Flavor;

pub(crate) const ADVICE: &str =
    "run the tests with `cargo xtask test`, which gets the servers for them";

/// The program of that kind, or of any kind that `TENURE_TEST_ONLY` does not leave out, Redis preferred.
pub(crate) fn find(flavor: Option<Flavor>) -> Result<PathBuf, String> {
    let Some(flavor) = flavor else {
        return any();
    };
    if flavor.is_left_out() {
        return Err(format!("{} leaves {flavor} out, but this test needs it", Flavor::ONLY));
    }
    Search::of(flavor).find()
}

/// A program that the tests have, for a program under test that starts servers of its own.
///
/// # Errors
/// If there is none, as a sentence.
pub fn of_tests() -> Result<PathBuf, String> {
    find(None)
}

fn any() -> Result<PathBuf, String> {
    first(&Flavor::wanted().map(Search::of).collect::<Vec<_>>())
}

/// The first that is found. One that the developer chose is never replaced by another.
fn first(searches: &[Search]) -> Result<PathBuf, String> {
    for search in searches {
        let found = search.find();
        if found.is_ok() || search.chosen.is_some() {
            return found;
        }
    }
    Err(format!("there is no Redis and no Valkey on the PATH; {ADVICE}"))
}

/// Where one kind of server is searched for.
struct Search {
    flavor: Flavor,
    chosen: Option<PathBuf>,
    path: OsString,
}

impl Search {
    /// As the environment says.
    fn of(flavor: Flavor) -> Self {
        let chosen = std::env::var_os(flavor.variable()).filter(|chosen| !chosen.is_empty());
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self { flavor, chosen: chosen.map(PathBuf::from), path }
    }

    fn find(&self) -> Result<PathBuf, String> {
        let (flavor, variable) = (self.flavor, self.flavor.variable());
        if let Some(chosen) = &self.chosen {
            let wrong = || format!("{variable} names {}, which is not ", chosen.display());
            return match version(chosen) {
                Some(version) if flavor.is(&version) => Ok(chosen.clone()),
                _ if !is_program(chosen) => Err(format!("{}a program; {ADVICE}", wrong())),
                _ => Err(format!("{}{flavor}; {ADVICE}", wrong())),
            };
        }
        server_in(&self.path, flavor)
            .ok_or_else(|| format!("there is no {flavor} on the PATH; {ADVICE}"))
    }
}

/// The first program in `folders` (in the form of the PATH variable) that is such a server, under any name.
#[must_use]
pub fn server_in(folders: &OsStr, flavor: Flavor) -> Option<PathBuf> {
    let mut programs = Flavor::PROGRAMS.iter().flat_map(|name| programs_in(folders, name));
    programs.find(|program| version(program).is_some_and(|version| flavor.is(&version)))
}

/// The programs called `name` in `folders` (in the form of the PATH variable), in order.
pub fn programs_in(folders: &OsStr, name: &str) -> impl Iterator<Item = PathBuf> {
    std::env::split_paths(folders)
        .map(move |folder| folder.join(name))
        .filter(|file| is_program(file))
}

pub(crate) fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// The program's output for `--version`; none if it does not run.
fn version(program: &Path) -> Option<String> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null());
    Some(String::from_utf8_lossy(&command.output().ok()?.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(flavor: Flavor, chosen: Option<&str>) -> Search {
        Search { flavor, chosen: chosen.map(PathBuf::from), path: "/nowhere".into() }
    }

    #[test]
    fn programs_are_found_in_order_and_plain_files_are_not() {
        let sh: Vec<_> = programs_in("/nowhere:/bin:/usr/bin".as_ref(), "sh").collect();
        assert_eq!(sh[0], Path::new("/bin/sh"));
        assert_eq!(programs_in("/etc".as_ref(), "passwd").count(), 0);
    }

    #[test]
    fn a_missing_server_is_an_error_with_a_remedy() {
        assert_eq!(
            search(Flavor::Valkey, None).find().unwrap_err(),
            "there is no Valkey on the PATH; \
             run the tests with `cargo xtask test`, which gets the servers for them"
        );
        let none = first(&Flavor::ALL.map(|flavor| search(flavor, None))).unwrap_err();
        assert!(none.starts_with("there is no Redis and no Valkey on the PATH; "), "{none}");
    }

    #[test]
    fn a_chosen_server_must_be_what_it_is_chosen_for() {
        let refusal = |chosen| search(Flavor::Redis, Some(chosen)).find().unwrap_err();
        let missing = refusal("/nowhere/redis");
        assert!(
            missing.starts_with("TENURE_TEST_REDIS names /nowhere/redis, which is not a program; ")
        );
        let other = refusal("/bin/echo");
        assert!(other.starts_with("TENURE_TEST_REDIS names /bin/echo, which is not Redis; "));
    }

    #[test]
    fn a_chosen_server_is_never_replaced() {
        let other = find(None).unwrap();
        let chosen = search(Flavor::Redis, Some("/nowhere/redis"));
        let there = Search { path: other.parent().unwrap().into(), ..search(Flavor::Valkey, None) };
        assert!(first(&[chosen, there]).unwrap_err().contains("/nowhere/redis"));
    }
}
