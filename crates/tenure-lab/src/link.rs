//! Plain connections to the servers, as the historic locks have them.

use std::io;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::Duration;

use tenure_testkit::resp::{Connection, Reply};
use url::Url;

/// Connects to the server of a URL: `redis://…` or `unix://…`.
///
/// # Errors
/// If the URL is of another kind, or no server answers there.
pub(crate) fn connect(url: &str) -> io::Result<Connection> {
    let parsed = Url::parse(url).map_err(io::Error::other)?;
    let mut link = match parsed.scheme() {
        "redis" | "valkey" => {
            let host = parsed.host_str().unwrap_or("127.0.0.1").trim_matches(['[', ']']);
            let mut found = (host, parsed.port().unwrap_or(6379)).to_socket_addrs()?;
            Connection::tcp(
                found.next().ok_or_else(|| io::Error::other("the host has no address"))?,
            )?
        }
        "unix" => Connection::unix(Path::new(parsed.path()))?,
        other => {
            let what = format!("the historic locks speak neither TLS nor to `{other}:` stores");
            return Err(io::Error::other(what));
        }
    };
    let decoded = |text: &str| percent_decoded(text);
    if let Some(password) = parsed.password() {
        let user = if parsed.username().is_empty() { "default" } else { parsed.username() };
        ask(&mut link, &["AUTH", &decoded(user), &decoded(password)])?;
    }
    let database = parsed.path().trim_start_matches('/');
    if parsed.scheme() != "unix" && !database.is_empty() {
        ask(&mut link, &["SELECT", database])?;
    }
    Ok(link)
}

fn percent_decoded(text: &str) -> String {
    // The query of a URL is decoded by the parser; a login is not.
    url::form_urlencoded::parse(text.replace('+', "%2B").as_bytes())
        .next()
        .map_or_else(String::new, |(name, _)| name.into_owned())
}

/// Sends a command. A refusal of the server is an error.
pub(crate) fn ask(link: &mut Connection, words: &[&str]) -> io::Result<Reply> {
    match link.command(words)? {
        Reply::Error(refusal) => Err(io::Error::other(refusal)),
        reply => Ok(reply),
    }
}

/// One server, to which a broken connection is made again.
pub(crate) struct Node {
    url: String,
    link: Option<Connection>,
    patience: Duration,
}

impl Node {
    /// A server that may take this long for an answer.
    pub(crate) fn new(url: &str, patience: Duration) -> Self {
        Self { url: url.to_owned(), link: None, patience }
    }

    /// Sends a command.
    pub(crate) fn ask(&mut self, words: &[&str]) -> io::Result<Reply> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => {
                let link = connect(&self.url)?;
                link.set_patience(self.patience)?;
                link
            }
        };
        // Without an answer the connection is closed: the next answer on it would be that of an earlier command.
        let reply = ask(&mut link, words)?;
        self.link = Some(link);
        Ok(reply)
    }

    /// Whether the answer is a success: `OK`, or 1.
    pub(crate) fn succeeds(&mut self, words: &[&str]) -> io::Result<bool> {
        let reply = self.ask(words)?;
        Ok(reply == Reply::Integer(1) || reply == Reply::Simple("OK".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_decoded() {
        assert_eq!(percent_decoded("a%40b+c%25"), "a@b+c%");
        assert_eq!(percent_decoded(""), "");
    }

    #[test]
    fn other_stores_are_refused() {
        let refusal = connect("rediss://127.0.0.1").unwrap_err().to_string();
        assert!(refusal.contains("neither TLS"), "{refusal}");
    }
}
