//! URLs that name a cluster: `redis+cluster://[user:password@]h1[:6379],h2,…`; `rediss+cluster://` with TLS and the
//! parameters of `rediss://`. Some of its nodes are enough: they know the others. All of them have the same login.

use url::form_urlencoded;

use super::address::{parse_trust, refuse};
use super::cluster::Members;
use super::host_list::HostList;
use crate::error::Invalid;

/// Where a node listens unless the URL says otherwise.
const PORT: u16 = 6379;

/// With TLS or without.
const SCHEMES: [(&str, bool); 4] = [
    ("redis+cluster", false),
    ("valkey+cluster", false),
    ("rediss+cluster", true),
    ("valkeys+cluster", true),
];

/// The cluster that a URL names; none if its scheme is another one.
pub(super) fn parse(text: &str) -> Option<Result<Members, Invalid>> {
    let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
    let (_, is_tls) = SCHEMES.iter().find(|(known, _)| *known == scheme)?;
    Some(parse_members(text, *is_tls))
}

fn parse_members(text: &str, is_tls: bool) -> Result<Members, Invalid> {
    let parts = HostList::split(text)?;
    if !matches!(parts.path.trim_matches('/'), "" | "0") {
        return Err(refuse("a cluster has one database, and so its URL names none"));
    }
    let parameters = form_urlencoded::parse(parts.query.as_bytes());
    let files: Vec<_> = parameters.map(|(key, file)| (key.into(), file.into())).collect();
    Ok(Members::new(parts.hosts(PORT)?, parts.login.clone(), parse_trust(is_tls, &files)?))
}

#[cfg(test)]
mod tests {
    use super::super::address::Store;
    use super::*;

    fn members(url: &str) -> Members {
        parse(url).unwrap().unwrap()
    }

    #[test]
    fn nodes_are_listed_with_their_ports() {
        let members = members("redis+cluster://ann:s%25et@h1,h2:7000,[::1]:7001/0");
        assert_eq!(members.to_string(), "the cluster of h1:6379, h2:7000, [::1]:7001");
        assert!(parse("redis://h1,h2").is_none());
    }

    #[test]
    fn another_url_gets_a_sentence_without_its_password() {
        for url in [
            "redis+cluster://ann:secret@",
            "redis+cluster://ann:secret@h1,,h2",
            "redis+cluster://ann:secret@h1:none",
            "redis+cluster://ann:secret@h1/3",
            "redis+cluster://ann:secret@h1?ca=ca.pem",
            "redis+cluster://ann:secret@h1#insecure",
            "rediss+cluster://ann:secret@h1?insecure=true",
            "redis+claster://ann:secret@h1",
        ] {
            let refused = Store::parse(url).map(drop).unwrap_err().to_string();
            assert!(refused.contains("redis+cluster://"), "{refused}");
            assert!(!refused.contains("secret"), "{refused}");
        }
    }
}
