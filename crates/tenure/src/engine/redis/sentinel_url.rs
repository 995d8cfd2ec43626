//! URLs that name Sentinels: `redis+sentinel://[user:password@]h1[:26379],h2,…/master[/database]`.
//!
//! Login and database are those of the master; the Sentinels' own login is `?sentinel_user=…&sentinel_password=…`.
//! `rediss+sentinel://` speaks TLS to both, with the parameters of `rediss://`. `redis-sentinel://…/database` with
//! `?sentinelMasterId=…`, as other clients write it, is understood, too.

use std::sync::Arc;

use url::form_urlencoded;

use super::address::{Address, Login, Master, decode, parse_database, parse_trust, refuse};
use super::host_list::HostList;
use super::sentinel::{Monitored, Sentinels};
use crate::error::Invalid;

/// Where a Sentinel listens unless the URL says otherwise.
const PORT: u16 = 26379;

pub(super) fn is_scheme(scheme: &str) -> bool {
    SCHEMES.iter().any(|(known, _)| *known == scheme)
}

/// With TLS or without.
const SCHEMES: [(&str, bool); 6] = [
    ("redis+sentinel", false),
    ("valkey+sentinel", false),
    ("redis-sentinel", false),
    ("rediss+sentinel", true),
    ("valkeys+sentinel", true),
    ("rediss-sentinel", true),
];

pub(super) fn parse(text: &str) -> Result<Address, Invalid> {
    let parts = HostList::split(text)?;
    let is_tls = SCHEMES.iter().any(|(known, is_tls)| *known == parts.scheme && *is_tls);
    let (path, query) = (parts.path, parts.query);
    let parameters = Parameters::parse(query)?;
    let (master, database) = match &parameters.master {
        Some(master) => (master.clone(), path),
        None => {
            let (master, database) = path.split_once('/').unwrap_or((path, ""));
            (decode(master)?, database)
        }
    };
    if master.is_empty() {
        return Err(refuse("it does not name the master, as in redis+sentinel://h1,h2,h3/main"));
    }
    let database = database.trim_matches('/');
    let monitored = Monitored {
        master,
        listed: parts.hosts(PORT)?,
        login: parameters.login,
        trust: parse_trust(is_tls, &parameters.files)?,
    };
    let database = parse_database(if database.is_empty() { "0" } else { database })?;
    Ok(Address {
        master: Master::Named(Arc::new(Sentinels::new(monitored))),
        login: Login { database, ..parts.login },
    })
}

/// What stands behind the question mark.
#[derive(Default)]
struct Parameters {
    /// The Sentinels' own.
    login: Login,
    master: Option<String>,
    /// Of TLS.
    files: Vec<(String, String)>,
}

impl Parameters {
    fn parse(query: &str) -> Result<Self, Invalid> {
        let mut found = Self::default();
        for (parameter, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.into_owned();
            match &*parameter {
                "sentinel_user" => found.login.user = Some(value),
                "sentinel_password" => found.login.password = Some(value),
                "sentinelMasterId" => found.master = Some(value),
                _ => found.files.push((parameter.into_owned(), value)),
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::address::{HostPort, greeting};
    use super::super::resp::Command;
    use super::*;

    fn said(commands: &[Command]) -> String {
        let mut bytes = Vec::new();
        commands.iter().for_each(|command| command.write(&mut bytes));
        String::from_utf8(bytes).unwrap().replace("\r\n", " ")
    }

    fn monitored(address: &Address) -> &Monitored {
        match &address.master {
            Master::Named(sentinels) => sentinels.monitored(),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn sentinels_are_listed_with_their_ports() {
        let address = Address::parse("redis+sentinel://s1,s2:7000,[::1]:7001/main").unwrap();
        let listed: Vec<_> = monitored(&address).listed.iter().map(HostPort::to_string).collect();
        assert_eq!(listed, ["s1:26379", "s2:7000", "[::1]:7001"]);
        assert_eq!(monitored(&address).master, "main");
        assert!(monitored(&address).trust.is_none());
        assert_eq!(said(&address.greeting()), "");
    }

    #[test]
    fn both_logins_are_kept_apart() {
        let url = "rediss+sentinel://ann:s%25et@s1,s2/my%20master/3\
                   ?sentinel_user=bob&sentinel_password=w%25rd&ca=/c.pem";
        let address = Address::parse(url).unwrap();
        assert_eq!(said(&address.greeting()), "*3 $4 AUTH $3 ann $4 s%et *2 $6 SELECT $1 3 ");
        let monitored = monitored(&address);
        assert_eq!(said(&greeting(&monitored.login)), "*3 $4 AUTH $3 bob $4 w%rd ");
        assert_eq!(monitored.master, "my master");
        assert!(monitored.trust.is_some());
        let shown = format!("{address:?} {}", address.master);
        assert!(!shown.contains("s%et") && !shown.contains("w%rd"), "{shown}");
    }

    #[test]
    fn the_form_of_other_clients_is_understood() {
        let address = Address::parse("redis-sentinel://s1,s2/2?sentinelMasterId=main").unwrap();
        assert_eq!(monitored(&address).master, "main");
        assert_eq!(said(&address.greeting()), "*2 $6 SELECT $1 2 ");
    }

    #[test]
    fn another_url_gets_a_sentence_without_its_passwords() {
        for url in [
            "redis+sentinel://ann:secret@s1,s2",
            "redis+sentinel://ann:secret@s1,s2/",
            "redis+sentinel://ann:secret@/main",
            "redis+sentinel://ann:secret@s1,,s2/main",
            "redis+sentinel://ann:secret@s1:none/main",
            "redis+sentinel://ann:secret@s1/main/first",
            "redis+sentinel://ann:secret@s1/main?ca=ca.pem",
            "redis+sentinel://ann:secret@s1/main#insecure",
            "rediss+sentinel://ann:secret@s1/main?insecure=true",
            "redis+sentinel://s1/main?sentinel_pass=secret",
        ] {
            let refused = Address::parse(url).map(drop).unwrap_err().to_string();
            assert!(!refused.contains("secret"), "{refused}");
        }
    }
}
