//! Where a server is, from its URL. The password is in no message and no Debug.

use std::fmt;
use std::path::PathBuf;

use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};

use crate::error::Invalid;

/// Where a server is, and as whom to speak to it.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) place: Place,
    pub(super) user: RedisConnectionInfo,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Tcp(String, u16),
    Unix(PathBuf),
}

/// The forms of a URL, for the sentence that refuses another.
const FORMS: &str = "redis://[user:password@]host[:port][/database], valkey://…, \
                     unix:///path/to/socket[?db=…&user=…&pass=…] or redis+unix://…";

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, Invalid> {
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        match scheme {
            "redis" | "valkey" | "unix" | "redis+unix" | "valkey+unix" => {}
            "rediss" | "valkeys" => return Err(refuse("TLS is not spoken yet")),
            _ if scheme.contains("sentinel") => return Err(refuse("Sentinel is not spoken yet")),
            _ if scheme.contains("cluster") => return Err(refuse("Cluster is not spoken yet")),
            _ => return Err(refuse("its scheme is unknown")),
        }
        // Its own words may repeat the URL, and with it the password.
        let info = url.into_connection_info().map_err(|_| refuse("it is no valid URL"))?;
        let place = match info.addr() {
            ConnectionAddr::Tcp(host, port) => Place::Tcp(host.clone(), *port),
            ConnectionAddr::Unix(path) if !path.as_os_str().is_empty() => Place::Unix(path.clone()),
            _ => return Err(refuse("it names no host and no socket")),
        };
        Ok(Self { place, user: info.redis_settings().clone() })
    }
}

fn refuse(why: &str) -> Invalid {
    Invalid::new(format!("this URL of a store cannot be used: {why}; write {FORMS}"))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("place", &self.place).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_that_people_use_are_understood() {
        let place = |url| Address::parse(url).unwrap().place;
        assert_eq!(place("redis://127.0.0.1"), Place::Tcp("127.0.0.1".into(), 6379));
        assert_eq!(place("valkey://host:7000/2"), Place::Tcp("host".into(), 7000));
        assert_eq!(place("unix:///run/redis.sock"), Place::Unix("/run/redis.sock".into()));
        assert_eq!(place("redis+unix:///run/r.sock?db=1"), Place::Unix("/run/r.sock".into()));
        let user = Address::parse("redis://ann:secret@host/3").unwrap().user;
        assert_eq!((user.username(), user.db()), (Some("ann"), 3));
    }

    #[test]
    fn another_url_gets_a_sentence_without_its_password() {
        for url in [
            "",
            "host:6379",
            "http://ann:secret@host",
            "redis://ann:secret@host:notaport",
            "rediss://ann:secret@host",
            "redis+sentinel://ann:secret@h1,h2/service",
            "redis+cluster://ann:secret@h1,h2",
        ] {
            let refused = Address::parse(url).unwrap_err().to_string();
            assert!(refused.contains("redis://[user"), "{refused}");
            assert!(!refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn debug_shows_no_password() {
        let address = Address::parse("redis://ann:secret@host").unwrap();
        assert!(!format!("{address:?}").contains("secret"));
    }
}
