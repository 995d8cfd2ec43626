//! The two kinds of server that Tenure promises to work with.

use std::fmt;

/// Lets a developer test with one server alone; `cargo xtask test` says so when it is set.
const ONLY: &str = "TENURE_TEST_ONLY";

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// The original.
    Redis,
    /// Its free fork.
    Valkey,
}

impl Flavor {
    /// Both, the more common one first.
    pub const ALL: [Self; 2] = [Self::Redis, Self::Valkey];

    /// Whether the developer runs the tests without it, by `TENURE_TEST_ONLY`. A test of this kind then
    /// has nothing to do; a server of it does not start.
    #[must_use]
    pub fn is_left_out(self) -> bool {
        self.is_left_out_by(&std::env::var(ONLY).unwrap_or_default())
    }

    /// The environment variable that names its program.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Self::Redis => "TENURE_TEST_REDIS",
            Self::Valkey => "TENURE_TEST_VALKEY",
        }
    }

    /// What its program is usually called.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Valkey => "valkey-server",
        }
    }

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Redis => Self::Valkey,
            Self::Valkey => Self::Redis,
        }
    }

    /// The kind that speaks in the answer to `--version`, such as `Valkey server v=9.1.2 …`. Some
    /// systems install Valkey as `redis-server`, so a program's name says nothing.
    pub(crate) fn parse(version: &str) -> Option<Self> {
        let name = version.split_once(" server v=")?.0;
        Self::ALL.into_iter().find(|flavor| name == flavor.to_string())
    }

    fn is_left_out_by(self, only: &str) -> bool {
        self.other().to_string().eq_ignore_ascii_case(only)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_what_it_says_it_is() {
        assert_eq!(Flavor::parse("Redis server v=7.0.15 sha=0"), Some(Flavor::Redis));
        assert_eq!(Flavor::parse("Valkey server v=9.1.2 sha=1"), Some(Flavor::Valkey));
        assert_eq!(Flavor::parse("postgres (PostgreSQL) 16.3"), None);
    }

    #[test]
    fn asking_for_one_leaves_out_the_other() {
        assert!(Flavor::Redis.is_left_out_by("valkey"));
        assert!(!Flavor::Valkey.is_left_out_by("valkey"));
        assert!(!Flavor::ALL.into_iter().any(|flavor| flavor.is_left_out_by("")));
    }
}
