//! The kinds of server that Tenure promises to work with.

use std::fmt;

/// Lets a developer test with some servers alone; `cargo xtask test` says so when it is set.
const ONLY: &str = "TENURE_TEST_ONLY";

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// The original, as it comes.
    Redis,
    /// The oldest of it that is supported: Redis 6.2.
    Redis6,
    /// Its free fork.
    Valkey,
}

impl Flavor {
    /// All of them, the most common one first.
    pub const ALL: [Self; 3] = [Self::Redis, Self::Redis6, Self::Valkey];

    /// What programs of any kind are called. Some systems install Valkey as `redis-server`.
    pub(crate) const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

    /// Those that the developer did not leave out.
    pub fn wanted() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|flavor| !flavor.is_left_out())
    }

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
            Self::Redis6 => "TENURE_TEST_REDIS_6",
            Self::Valkey => "TENURE_TEST_VALKEY",
        }
    }

    /// Whether a program is of this kind, by its answer to `--version`, such as
    /// `Valkey server v=9.1.2 …`.
    pub(crate) fn is(self, version: &str) -> bool {
        version.starts_with(match self {
            Self::Redis => "Redis server v=",
            Self::Redis6 => "Redis server v=6.2.",
            Self::Valkey => "Valkey server v=",
        })
    }

    fn is_left_out_by(self, only: &str) -> bool {
        let word = match self {
            Self::Redis => "redis",
            Self::Redis6 => "redis_6",
            Self::Valkey => "valkey",
        };
        !only.is_empty() && only.split(',').all(|it| it != word)
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
    fn a_server_is_what_it_says_it_is() {
        let kinds = |version: &str| {
            Flavor::ALL.into_iter().filter(|flavor| flavor.is(version)).collect::<Vec<_>>()
        };
        assert_eq!(kinds("Redis server v=7.0.15 sha=0"), [Flavor::Redis]);
        assert_eq!(kinds("Redis server v=6.2.5 sha=0"), [Flavor::Redis, Flavor::Redis6]);
        assert_eq!(kinds("Valkey server v=9.1.2 sha=1"), [Flavor::Valkey]);
        assert_eq!(kinds("postgres (PostgreSQL) 16.3"), []);
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
