//! URLs that name a quorum: `redis+quorum://[user:password@]h1[:6379],h2,h3[,…][/database]`; `rediss+quorum://` with TLS
//! and the parameters of `rediss://`. All of its servers have the same login and database.

use std::fmt;

use url::form_urlencoded;

use super::address::{Address, Login, Master, parse_database, parse_trust, refuse};
use super::host_list::HostList;
use crate::core::quorum::Size;
use crate::error::Invalid;

/// Where a server listens unless the URL says otherwise.
const PORT: u16 = 6379;

/// With TLS or without.
const SCHEMES: [(&str, bool); 4] = [
    ("redis+quorum", false),
    ("valkey+quorum", false),
    ("rediss+quorum", true),
    ("valkeys+quorum", true),
];

/// One server of a quorum.
#[derive(Clone)]
pub(crate) struct NodeAddress(pub(super) Address);

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.master.fmt(f)
    }
}

/// The servers of the quorum that a URL names; none if its scheme is another one.
pub(crate) fn parse(text: &str) -> Option<Result<Vec<NodeAddress>, Invalid>> {
    let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
    let (_, is_tls) = SCHEMES.iter().find(|(known, _)| *known == scheme)?;
    Some(parse_nodes(text, *is_tls))
}

fn parse_nodes(text: &str, is_tls: bool) -> Result<Vec<NodeAddress>, Invalid> {
    let parts = HostList::split(text)?;
    let parameters = form_urlencoded::parse(parts.query.as_bytes());
    let files: Vec<_> = parameters.map(|(key, file)| (key.into(), file.into())).collect();
    let trust = parse_trust(is_tls, &files)?;
    let database = parts.path.trim_matches('/');
    let database = parse_database(if database.is_empty() { "0" } else { database })?;
    let login = Login { database, ..parts.login.clone() };
    let mut hosts = parts.hosts(PORT)?;
    Size::new(hosts.len())?;
    let node = |host: &super::address::HostPort| {
        let endpoint = host.endpoint(trust.as_ref()).map_err(|error| refuse(&error.to_string()))?;
        Ok(NodeAddress(Address { master: Master::At(endpoint), login: login.clone() }))
    };
    let nodes = hosts.iter().map(node).collect();
    hosts.sort_unstable();
    if hosts.windows(2).any(|two| two[0] == two[1]) {
        return Err(refuse("it names a server twice, and its nodes must be independent"));
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> Vec<String> {
        parse(url).unwrap().unwrap().iter().map(NodeAddress::to_string).collect()
    }

    #[test]
    fn the_nodes_are_listed_with_their_ports() {
        assert_eq!(
            shown("redis+quorum://h1,h2:7000,[::1]:7001"),
            ["h1:6379", "h2:7000", "::1:7001"]
        );
        assert_eq!(shown("rediss+quorum://ann:word@h1,h2,h3,h4,h5/2?ca=/c.pem").len(), 5);
        assert!(parse("redis+cluster://h1,h2,h3").is_none());
    }

    #[test]
    fn every_node_has_the_login_and_the_database() {
        for node in parse("redis+quorum://ann:s%25et@h1,h2,h3/3").unwrap().unwrap() {
            let mut bytes = Vec::new();
            node.0.greeting().iter().for_each(|command| command.write(&mut bytes));
            let sent = String::from_utf8(bytes).unwrap().replace("\r\n", " ");
            assert_eq!(sent, "*3 $4 AUTH $3 ann $4 s%et *2 $6 SELECT $1 3 ");
        }
    }

    #[test]
    fn another_url_gets_a_sentence_without_its_password() {
        for url in [
            "redis+quorum://ann:secret@h1,h2",
            "redis+quorum://ann:secret@h1,h2,h3,h4",
            "redis+quorum://ann:secret@h1,h2,h2",
            "redis+quorum://ann:secret@h1,,h3",
            "redis+quorum://ann:secret@h1,h2,h3/first",
            "redis+quorum://ann:secret@h1,h2,h3?ca=ca.pem",
            "rediss+quorum://ann:secret@h1,h2,h3?insecure=true",
            "redis+quorum://ann:secret@h1,h2,h3#x",
        ] {
            let refused = parse(url).unwrap().map(drop).unwrap_err().to_string();
            assert!(!refused.contains("secret"), "{refused}");
        }
    }
}
