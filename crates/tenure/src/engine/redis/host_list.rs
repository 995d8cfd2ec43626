//! The parts of a URL that names several hosts: `scheme://[user:password@]h1[:port],h2,…/path?query`.
//!
//! The `url` crate does not know such URLs; so they are split here, and each host is parsed as a URL of its own.

use url::Url;

use super::address::{HostPort, Login, decode, parse_host, refuse};
use crate::error::Invalid;

/// A URL that names several hosts, in its parts.
pub(super) struct HostList<'a> {
    pub(super) scheme: &'a str,
    pub(super) login: Login,
    hosts: &'a str,
    pub(super) path: &'a str,
    pub(super) query: &'a str,
}

impl<'a> HostList<'a> {
    pub(super) fn split(text: &'a str) -> Result<Self, Invalid> {
        if text.contains('#') {
            return Err(refuse("nothing may follow a #, and no connection is made insecure by it"));
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(|| refuse("it names no host"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        Ok(Self { scheme, login: parse_login(login)?, hosts, path, query })
    }

    /// The hosts, with this port unless the URL says otherwise.
    pub(super) fn hosts(&self, port: u16) -> Result<Vec<HostPort>, Invalid> {
        self.hosts.split(',').map(|host| parse_one(host, port)).collect()
    }
}

fn parse_login(login: &str) -> Result<Login, Invalid> {
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(decode(password)?)),
        None => (login, None),
    };
    let user = Some(decode(user)?).filter(|user| !user.is_empty());
    Ok(Login { user, password, database: 0 })
}

fn parse_one(text: &str, port: u16) -> Result<HostPort, Invalid> {
    // The error of the crate could repeat the text.
    let url = Url::parse(&format!("redis://{text}")).map_err(|_| refuse("a host is not one"))?;
    let is_more = !url.path().trim_matches('/').is_empty() || !url.username().is_empty();
    if is_more {
        return Err(refuse("a host is not one"));
    }
    let (host, _) = parse_host(&url)?;
    Ok(HostPort { host, port: url.port().unwrap_or(port) })
}
