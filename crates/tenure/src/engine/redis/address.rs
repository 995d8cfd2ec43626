//! The address of a server, parsed from its URL. The password is in no message and no Debug.
//!
//! Unknown parameters are errors, never ignored: a misspelled parameter that was meant to make the
//! connection safe must not be lost.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use rustls::pki_types::ServerName;
use url::Url;

use super::cluster::{Members, Presence};
use super::cluster_url;
use super::pace::Pace;
use super::resp::Command;
use super::sentinel::Sentinels;
use super::sentinel_url;
use super::tls::Trust;
use crate::error::{Invalid, StoreError};

/// Which server takes the locks, and the login.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) master: Master,
    pub(super) login: Login,
}

/// What a URL names: one server, also if it changes, or a cluster of them.
pub(super) enum Store {
    One(Box<Address>),
    Cluster(Arc<Members>),
}

impl Store {
    pub(super) fn parse(url: &str) -> Result<Self, Invalid> {
        match cluster_url::parse(url) {
            Some(members) => Ok(Self::Cluster(Arc::new(members?))),
            None => Address::parse(url).map(|address| Self::One(Box::new(address))),
        }
    }
}

/// The server that takes the locks.
#[derive(Clone)]
pub(super) enum Master {
    At(Endpoint),
    /// The one that Sentinels name.
    Named(Arc<Sentinels>),
    /// A node of a cluster.
    Member(Arc<Presence>),
}

impl Master {
    /// Where it is now.
    ///
    /// # Errors
    /// When the Sentinels do not name it.
    pub(super) async fn locate(&self, pace: &Pace) -> Result<Endpoint, StoreError> {
        match self {
            Self::At(endpoint) => Ok(endpoint.clone()),
            Self::Named(sentinels) => sentinels.locate(pace).await,
            Self::Member(presence) => presence.endpoint(),
        }
    }
}

impl fmt::Display for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(endpoint) => endpoint.fmt(f),
            Self::Named(sentinels) => sentinels.fmt(f),
            Self::Member(presence) => presence.at.fmt(f),
        }
    }
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct HostPort {
    pub(super) host: String,
    pub(super) port: u16,
}

impl HostPort {
    /// Where this is, with TLS or without.
    ///
    /// # Errors
    /// When no certificate can be for such a host.
    pub(super) fn endpoint(&self, trust: Option<&Trust>) -> Result<Endpoint, StoreError> {
        let Self { host, port } = self.clone();
        let Some(trust) = trust.cloned() else { return Ok(Endpoint::Tcp(host, port)) };
        let name = ServerName::try_from(host.clone()).map_err(|_| {
            StoreError::refused(format!("no certificate can be for a host named `{host}`"))
        })?;
        Ok(Endpoint::Tls { host, port, name, trust })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Tcp(String, u16),
    /// With TLS; the server's certificate must be valid for `name`.
    Tls {
        host: String,
        port: u16,
        name: ServerName<'static>,
        trust: Trust,
    },
    Unix(PathBuf),
}

#[derive(Clone, Default)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: u32,
}

/// The accepted forms of a URL, for error messages.
const FORMS: &str = "redis://[user:password@]host[:port][/database], valkey://…, \
                     rediss://…[?ca=FILE&cert=FILE&key=FILE] or valkeys://… for TLS, \
                     redis+sentinel://[user:password@]s1,s2,s3/master[/database], \
                     redis+cluster://[user:password@]h1,h2,h3, \
                     each of them with ?protocol=redisson for locks that are shared with Redisson, \
                     redis+quorum://[user:password@]h1,h2,h3[/database], \
                     unix:///path/to/socket[?db=…&user=…&pass=…]; \
                     and without a server local:, local:///folder or memory:";

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, Invalid> {
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        let parse = match scheme {
            "redis" | "valkey" => parse_plain,
            "rediss" | "valkeys" => parse_tls,
            "unix" | "redis+unix" | "valkey+unix" => parse_unix,
            _ if sentinel_url::is_scheme(scheme) => return sentinel_url::parse(url),
            _ => return Err(refuse("its scheme is unknown")),
        };
        let url = Url::parse(url).map_err(|error| refuse(&error.to_string()))?;
        if url.fragment().is_some() {
            return Err(refuse(
                "it has a fragment (#…), and none is supported, not even #insecure",
            ));
        }
        parse(&url)
    }

    /// The server and its database, for people.
    pub(super) fn shown(&self) -> String {
        format!("{} database {}", self.master, self.login.database)
    }

    /// The commands that log in and select the database, sent first on a connection.
    pub(super) fn greeting(&self) -> Vec<Command> {
        greeting(&self.login)
    }
}

/// The commands that log in and select the database.
pub(super) fn greeting(Login { user, password, database }: &Login) -> Vec<Command> {
    let mut commands = Vec::new();
    // A user without a password is still not the default user.
    if user.is_some() || password.is_some() {
        let mut command = Command::new("AUTH");
        user.iter().for_each(|user| command.push(user));
        commands.push(command.arg(password.as_deref().unwrap_or("")));
    }
    if *database != 0 {
        commands.push(Command::new("SELECT").arg(database.to_string()));
    }
    commands
}

fn parse_plain(url: &Url) -> Result<Address, Invalid> {
    let (host, port) = parse_host(url)?;
    match url.query_pairs().next() {
        None => {
            Ok(Address { master: Master::At(Endpoint::Tcp(host, port)), login: parse_login(url)? })
        }
        Some((key, _)) if matches!(&*key, "ca" | "cert" | "key") => {
            Err(refuse("ca, cert and key are for TLS, and so for rediss://"))
        }
        Some(_) => Err(refuse("it has a parameter after a question mark, and takes none")),
    }
}

fn parse_tls(url: &Url) -> Result<Address, Invalid> {
    let (host, port) = parse_host(url)?;
    let name = ServerName::try_from(host.clone());
    let name = name.map_err(|_| refuse("its host is not a valid name for a certificate"))?;
    let files: Vec<_> = url.query_pairs().map(|(key, file)| (key.into(), file.into())).collect();
    let trust = parse_trust(true, &files)?.unwrap_or_default();
    let endpoint = Endpoint::Tls { host, port, name, trust };
    Ok(Address { master: Master::At(endpoint), login: parse_login(url)? })
}

/// The TLS parameters of a URL; none without TLS.
pub(super) fn parse_trust(
    is_tls: bool,
    files: &[(String, String)],
) -> Result<Option<Trust>, Invalid> {
    let (mut ca, mut cert, mut key) = (None, None, None);
    for (parameter, file) in files {
        // For example an unset variable of a shell script.
        if file.is_empty() {
            return Err(refuse("one of its parameters names no file"));
        }
        let file = Some(PathBuf::from(file));
        match parameter.as_str() {
            "ca" | "cert" | "key" if !is_tls => {
                return Err(refuse("ca, cert and key are for TLS, and so for rediss://"));
            }
            "ca" => ca = file,
            "cert" => cert = file,
            "key" => key = file,
            _ => return Err(refuse("it has a parameter that is not known")),
        }
    }
    let trust = Trust::new(ca, cert, key).map_err(|invalid| refuse(&invalid.to_string()))?;
    Ok(is_tls.then_some(trust))
}

pub(super) fn parse_host(url: &Url) -> Result<(String, u16), Invalid> {
    let host = url.host_str().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| refuse("it names no host"))?;
    // An IPv6 address is in brackets in a URL, and without them when it is resolved.
    Ok((host.trim_matches(['[', ']']).to_owned(), url.port().unwrap_or(6379)))
}

fn parse_login(url: &Url) -> Result<Login, Invalid> {
    let database = url.path().trim_matches('/');
    Ok(Login {
        user: Some(decode(url.username())?).filter(|user| !user.is_empty()),
        password: url.password().map(decode).transpose()?,
        database: parse_database(if database.is_empty() { "0" } else { database })?,
    })
}

fn parse_unix(url: &Url) -> Result<Address, Invalid> {
    if cfg!(windows) {
        let why = "a Unix socket cannot be used on Windows: name the server as redis://host[:port]";
        return Err(Invalid::new(why));
    }
    let path = decode(url.path())?;
    if path.is_empty() || path == "/" || url.has_host() && url.host_str() != Some("") {
        return Err(refuse("it names no socket"));
    }
    let mut login = Login::default();
    for (key, value) in url.query_pairs() {
        match &*key {
            "db" => login.database = parse_database(&value)?,
            "user" => login.user = Some(value.into_owned()),
            "pass" => login.password = Some(value.into_owned()),
            _ => return Err(refuse("it has a parameter other than db, user and pass")),
        }
    }
    Ok(Address { master: Master::At(Endpoint::Unix(path.into())), login })
}

pub(super) fn parse_database(text: &str) -> Result<u32, Invalid> {
    text.parse().map_err(|_| refuse("its database is not a number"))
}

pub(super) fn decode(text: &str) -> Result<String, Invalid> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| refuse("it is not UTF-8"))
}

pub(super) fn refuse(why: &str) -> Invalid {
    Invalid::new(format!("this URL of a store cannot be used: {why}; write {FORMS}"))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) | Self::Tls { host, port, .. } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("master", &self.master.to_string()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str) -> Endpoint {
        match Address::parse(url).unwrap().master {
            Master::At(endpoint) => endpoint,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn the_forms_that_people_use_are_understood() {
        assert_eq!(endpoint("redis://127.0.0.1"), Endpoint::Tcp("127.0.0.1".into(), 6379));
        assert_eq!(endpoint("redis://[::1]:7000"), Endpoint::Tcp("::1".into(), 7000));
        assert_eq!(endpoint("valkey://host:7000/2"), Endpoint::Tcp("host".into(), 7000));
        assert_eq!(endpoint("unix:///run/redis.sock"), Endpoint::Unix("/run/redis.sock".into()));
        assert_eq!(endpoint("redis+unix:///run/r.sock?db=1"), Endpoint::Unix("/run/r.sock".into()));
    }

    #[test]
    fn tls_checks_the_name_and_files_of_the_url() {
        let file = |name: &str| Some(PathBuf::from(name));
        let Endpoint::Tls { host, port, name, trust } = endpoint("rediss://ann:word@host/2") else {
            panic!("without TLS")
        };
        assert_eq!((host.as_str(), port, &*name.to_str()), ("host", 6379, "host"));
        assert_eq!(trust, Trust::default());
        let given = endpoint("valkeys://[::1]:7000?ca=/etc/c%20a.pem&cert=me.pem&key=me.key");
        let Endpoint::Tls { name, trust, .. } = &given else { panic!("without TLS") };
        assert!(matches!(name, ServerName::IpAddress(_)), "{name:?}");
        let expected = Trust::new(file("/etc/c a.pem"), file("me.pem"), file("me.key"));
        assert_eq!(*trust, expected.unwrap());
        assert_eq!(given.to_string(), "::1:7000");
    }

    #[test]
    fn the_login_comes_first() {
        let sent = |url: &str| {
            let mut bytes = Vec::new();
            let commands = Address::parse(url).unwrap().greeting();
            commands.iter().for_each(|command| command.write(&mut bytes));
            String::from_utf8(bytes).unwrap().replace("\r\n", " ")
        };
        assert_eq!(sent("redis://host"), "");
        let full = "*3 $4 AUTH $3 ann $4 s%et *2 $6 SELECT $1 3 ";
        assert_eq!(sent("redis://ann:s%25et@host/3"), full);
        assert_eq!(sent("rediss://ann:s%25et@host/3?ca=ca.pem"), full);
        assert_eq!(sent("unix:///r.sock?db=3&user=ann&pass=s%25et"), full);
        assert_eq!(sent("redis://:word@host"), "*2 $4 AUTH $4 word ");
    }

    #[test]
    fn another_url_gets_a_sentence_without_its_password() {
        for url in [
            "",
            "host:6379",
            "http://ann:secret@host",
            "redis://",
            "redis://ann:secret@host:notaport",
            "redis://ann:secret@host/first",
            "redis://ann:secret@host?ca=ca.pem",
            "redis://ann:secret@host?protocol=3",
            "rediss://ann:secret@host?insecure=true",
            "rediss://ann:secret@host#insecure",
            "rediss://ann:secret@host?ca=",
            "rediss://ann:secret@host?cert=client.pem",
            "rediss://ann:secret@host?key=client.key",
            "rediss://ann:secret@no%20name",
            "unix://",
            "unix:///r.sock?password=secret",
            "redis+other://ann:secret@h1,h2",
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
