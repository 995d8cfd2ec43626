//! The kinds of server that Tenure promises to work with.

use std::fmt;

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// The original, in the version that the system has.
    Redis,
    /// The oldest supported version of it: Redis 6.2.
    Redis6,
    /// Its free fork.
    Valkey,
}

impl Flavor {
    /// All of them, the most common one first.
    pub const ALL: [Self; 3] = [Self::Redis, Self::Redis6, Self::Valkey];

    /// The environment variable that restricts the tests to some kinds of server: keywords, separated by
    /// commas. `cargo xtask test` reports which kinds it leaves out.
    pub const ONLY: &str = "TENURE_TEST_ONLY";

    /// The names of the programs, of any kind. Some systems install Valkey as `redis-server`.
    pub const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

    /// The kinds that `TENURE_TEST_ONLY` does not leave out.
    pub fn wanted() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|flavor| !flavor.is_left_out())
    }

    /// Whether `TENURE_TEST_ONLY` leaves this kind out. A test of this kind then has nothing to do; a
    /// server of it does not start.
    #[must_use]
    pub fn is_left_out(self) -> bool {
        self.is_left_out_by(&std::env::var(Self::ONLY).unwrap_or_default())
    }

    /// The environment variable that names its program to the tests; a developer may set it to choose one.
    #[must_use]
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Redis => "TENURE_TEST_REDIS",
            Self::Redis6 => "TENURE_TEST_REDIS_6",
            Self::Valkey => "TENURE_TEST_VALKEY",
        }
    }

    /// The usual name of its program.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Self::Redis | Self::Redis6 => Self::PROGRAMS[0],
            Self::Valkey => Self::PROGRAMS[1],
        }
    }

    /// Its keyword in `TENURE_TEST_ONLY`.
    #[must_use]
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Redis6 => "redis_6",
            Self::Valkey => "valkey",
        }
    }

    /// Whether a program is of this kind, by the output of `--version`, such as
    /// `Valkey server v=9.1.2 …`. Never by its name: Valkey may be installed as `redis-server`.
    #[must_use]
    pub fn is(self, version: &str) -> bool {
        version.starts_with(match self {
            Self::Redis => "Redis server v=",
            Self::Redis6 => "Redis server v=6.2.",
            Self::Valkey => "Valkey server v=",
        })
    }

    fn is_left_out_by(self, only: &str) -> bool {
        !only.is_empty() && only.split(',').all(|keyword| keyword != self.keyword())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_its_version_line() {
        let kinds = |version: &str| {
            Flavor::ALL.into_iter().filter(|flavor| flavor.is(version)).collect::<Vec<_>>()
        };
        assert_eq!(kinds("Redis server v=7.0.15 sha=0"), [Flavor::Redis]);
        // Where the system's Redis is the old one, it is tested as both.
        assert_eq!(kinds("Redis server v=6.2.5 sha=0"), [Flavor::Redis, Flavor::Redis6]);
        assert_eq!(kinds("Valkey server v=9.1.2 sha=1"), [Flavor::Valkey]);
        assert_eq!(kinds("postgres (PostgreSQL) 16.3"), []);
        assert_eq!(kinds(""), []);
    }

    #[test]
    fn asking_for_some_leaves_out_the_others() {
        assert!(Flavor::Redis.is_left_out_by("valkey"));
        assert!(!Flavor::Valkey.is_left_out_by("valkey"));
        assert!(!Flavor::Redis6.is_left_out_by("redis_6,valkey"));
        assert!(Flavor::Redis.is_left_out_by("redis_6,valkey"));
        assert!(!Flavor::ALL.into_iter().any(|flavor| flavor.is_left_out_by("")));
    }
}
