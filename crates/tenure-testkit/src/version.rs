//! The kind and version of a server.

use std::fmt;

use crate::flavor::Flavor;

/// The kind and version of a server, for example `Redis 7.0.15`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// Its kind; an old Redis is a Redis, too.
    pub flavor: Flavor,
    /// Major, minor and patch, in the numbering of that kind.
    pub number: (u32, u32, u32),
}

impl Version {
    /// Parses the output of `INFO server`. Valkey also claims a Redis version, so its own field goes first.
    pub(crate) fn parse(info: &str) -> Option<Self> {
        let valkey = field(info, "valkey_version").map(|number| (Flavor::Valkey, number));
        let (flavor, text) =
            valkey.or_else(|| Some((Flavor::Redis, field(info, "redis_version")?)))?;
        let mut numbers = text.split('.').map(|number| number.parse().ok());
        Some(Self { flavor, number: (numbers.next()??, numbers.next()??, numbers.next()??) })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (flavor, (major, minor, patch)) = (self.flavor, self.number);
        write!(f, "{flavor} {major}.{minor}.{patch}")
    }
}

/// One field of an `INFO` answer.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_and_valkey_are_distinguished() {
        let redis = Version::parse("# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n");
        assert_eq!(redis.unwrap().to_string(), "Redis 7.0.15");
        let valkey =
            Version::parse("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n");
        assert_eq!(valkey.unwrap().to_string(), "Valkey 9.1.2");
        assert_eq!(Version::parse("+PONG"), None);
    }
}
