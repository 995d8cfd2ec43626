//! Under which names the server may be asked. A page of another site must not be able to act with a user's browser: its own name
//! may lead here (DNS rebinding), or it may send requests here (cross-site).

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, header};

/// The names of this server.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    names: Vec<String>,
}

impl Hosts {
    /// Accepts these names, besides `localhost` and addresses: a foreign page cannot be loaded from an address that is ours. A port
    /// does not count: which one a browser uses depends on the proxy in between.
    #[must_use]
    pub fn new(names: &[String]) -> Self {
        let name = |name: &String| without_port(name).unwrap_or(name).to_ascii_lowercase();
        Self { names: names.iter().map(name).collect() }
    }

    /// Why a request is refused; none if it is from here, or from no browser.
    pub(crate) fn refusal(&self, headers: &HeaderMap, is_page: bool) -> Option<String> {
        let Some(host) = single(headers, header::HOST) else {
            return Some("a request has one header Host".to_owned());
        };
        if !self.knows(host) {
            let host = host.escape_debug();
            return Some(format!(
                "this server is not `{host}`: add that name with --host, if it is meant"
            ));
        }
        if let Some(origin) = headers.get(header::ORIGIN)
            && !origin.to_str().is_ok_and(|origin| is_same(origin, host))
        {
            return Some("a page of another origin may not use this server".to_owned());
        }
        let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
        let is_ours = matches!(site, None | Some(b"same-origin" | b"none"));
        // A link from elsewhere may lead to the page, which has no data in itself.
        let why = "a page of another site may not use this server";
        (!is_ours && !is_page).then(|| why.to_owned())
    }

    fn knows(&self, host: &str) -> bool {
        let Some(name) = without_port(host) else { return false };
        let name = name.to_ascii_lowercase();
        let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let is_address = literal.unwrap_or(&name).parse::<IpAddr>().is_ok();
        is_address || name == "localhost" || self.names.contains(&name)
    }
}

/// The only value of a header.
fn single(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() { None } else { first.to_str().ok() }
}

/// Whether an origin is this host. A proxy may do TLS, so the scheme does not count.
fn is_same(origin: &str, host: &str) -> bool {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
}

/// The host without a port.
fn without_port(host: &str) -> Option<&str> {
    let end = match host.starts_with('[') {
        true => host.find(']')? + 1,
        false => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    let digits = port.strip_prefix(':');
    let is_port = port.is_empty()
        || digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    (is_port && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs.map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn only_the_servers_own_names_are_answered() {
        let hosts = Hosts::new(&["Locks.example.org".to_owned(), "other.example:8443".to_owned()]);
        for good in [
            "127.0.0.1:7878",
            "localhost",
            "LOCALHOST:1",
            "[::1]:7878",
            "locks.Example.org:443",
            "other.example",
            "other.example:8443",
        ] {
            assert!(hosts.refusal(&headers(&[("host", good)]), false).is_none(), "{good}");
        }
        for bad in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:7878",
            "",
            "a:b",
            "[::1",
        ] {
            assert!(hosts.refusal(&headers(&[("host", bad)]), false).is_some(), "{bad}");
        }
        assert!(hosts.refusal(&HeaderMap::new(), false).is_some());
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let hosts = Hosts::default();
        let with = |name, value| headers(&[("host", "127.0.0.1:7878"), (name, value)]);
        for (name, value) in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://127.0.0.1:7879"),
            ("origin", "http://127.0.0.1:7878.evil.example"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert!(hosts.refusal(&with(name, value), false).is_some(), "{name}: {value}");
        }
        for (name, value) in
            [("origin", "http://127.0.0.1:7878"), ("sec-fetch-site", "same-origin")]
        {
            assert!(hosts.refusal(&with(name, value), false).is_none(), "{name}: {value}");
        }
        // A link leads to the page.
        assert!(hosts.refusal(&with("sec-fetch-site", "cross-site"), true).is_none());
    }
}
