//! Which store is used, and connecting to it.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use tenure::{About, Builder, Error, Tenure};
use url::Url;

use crate::args::patience::Patience;
use crate::exit::Exit;
use crate::view::about;

/// The variable with the store's URL.
pub(crate) const VARIABLE: &str = "TENURE_URL";

/// The variable that is used if the other one is not set; other programs use it, too.
const OTHER_VARIABLE: &str = "REDIS_URL";

#[derive(Args)]
pub(crate) struct Store {
    /// The store, such as redis://host, rediss://host for TLS, or local:///folder. Without it
    /// TENURE_URL is used, or else REDIS_URL; if neither is set, `local:`, which the commands of one
    /// user on this machine share
    // Read here, and not by the parser: that would show it as required wherever the variable is set.
    #[arg(long)]
    url: Option<String>,
}

/// Why there is no client.
pub(crate) enum Unusable {
    /// No attempt was made: the URL is missing or wrong.
    Named(String),
    Store(Error),
}

impl Unusable {
    /// Reports why.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Named(why) => Exit::Usage.because(why),
            Self::Store(error) => Exit::report(error),
        }
    }
}

impl Store {
    pub(crate) fn new(url: Option<String>) -> Self {
        Self { url }
    }

    /// Connects once. An error is reported already.
    pub(crate) async fn connect(&self) -> Result<Tenure, ExitCode> {
        let builder = Tenure::builder().about(about::of_caller());
        self.connect_with(|| builder).await.map_err(|unusable| unusable.report())
    }

    pub(crate) async fn connect_with(
        &self,
        builder: impl FnOnce() -> Builder,
    ) -> Result<Tenure, Unusable> {
        let url = self.url().map_err(Unusable::Named)?;
        builder().connect(&url).await.map_err(Unusable::Store)
    }

    /// Connects as this holder, with retries for as long as `patience` lasts. An error is reported already.
    pub(crate) async fn reach(
        &self,
        about: &About,
        patience: &Patience,
    ) -> Result<Tenure, ExitCode> {
        let url = self.url().map_err(|why| Exit::Usage.because(&why))?;
        let connect = async || {
            let builder = Tenure::builder().about(about.clone()).patience(patience.time());
            builder.connect(&url).await
        };
        patience.retry(connect).await.map_err(|error| patience.report(&error))
    }

    /// The URL, or an error if it is empty or not text: no other store is used silently.
    pub(crate) fn url(&self) -> Result<String, String> {
        let variable = |name| std::env::var_os(name).map(|url| (name, url));
        let named = self.url.as_ref().map(|url| ("--url", OsString::from(url)));
        let named = named.or_else(|| variable(VARIABLE)).or_else(|| variable(OTHER_VARIABLE));
        let Some((source, url)) = named else { return Ok("local:".to_owned()) };
        match url.into_string() {
            Ok(url) if url.is_empty() => {
                let or = if source == "--url" { "leave it out" } else { "unset it" };
                let forms = "such as redis://host or local:";
                Err(format!("{source} is empty: name a store there, {forms}, or {or}"))
            }
            Ok(url) => Ok(url),
            Err(_) => Err(format!("{source} is not text, so it names no store")),
        }
    }

    /// The URL that the command line has, without user and password.
    pub(crate) fn named(&self) -> Option<String> {
        self.url.as_deref().map(without_login)
    }

    /// The URL for a command that runs under a lock, so that a `tenure` in there uses the same store; without the
    /// password. None if the store was not named: then both use the same default.
    pub(crate) fn for_child(&self) -> Option<String> {
        let variable = || std::env::var(VARIABLE).ok();
        self.url.clone().or_else(variable).map(|url| without_login(&url))
    }
}

/// A store's URL without user and password.
fn without_login(text: &str) -> String {
    let Some(hosts) = several_hosts(text) else { return without_login_of_one(text) };
    // The `url` crate accepts one host only, so another one stands in for the list.
    const ONE: &str = "several-hosts.invalid";
    without_login_of_one(&text.replacen(hosts, ONE, 1)).replacen(ONE, hosts, 1)
}

/// The list of hosts, if the URL has several, as that of Sentinels has.
fn several_hosts(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    hosts.contains(',').then_some(hosts)
}

fn without_login_of_one(text: &str) -> String {
    // A URL that cannot be parsed cannot be used, either.
    let Ok(mut url) = Url::parse(text) else { return String::new() };
    let is_login =
        |name: &str| matches!(name, "user" | "pass" | "sentinel_user" | "sentinel_password");
    let has_login = !url.username().is_empty()
        || url.password().is_some()
        || url.query_pairs().any(|(name, _)| is_login(&name));
    if !has_login {
        return text.to_owned();
    }
    // Refused by URLs that cannot have one.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    let rest = url.query_pairs().into_owned().filter(|(name, _)| !is_login(name));
    let rest: Vec<_> = rest.collect();
    match rest.is_empty() {
        true => url.set_query(None),
        false => drop(url.query_pairs_mut().clear().extend_pairs(rest)),
    }
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_taken_out_of_every_form_of_url() {
        for (with, without) in [
            ("redis://ann:secret@host:7000/2", "redis://host:7000/2"),
            ("redis://:secret@host", "redis://host"),
            ("redis://secret@host", "redis://host"),
            ("rediss://a:s@host?ca=/c%20a.pem", "rediss://host?ca=%2Fc+a.pem"),
            ("unix:///r.sock?db=1&user=ann&pass=secret", "unix:///r.sock?db=1"),
            ("unix:///r.sock?p%61ss=secret", "unix:///r.sock"),
            ("not a URL, but secret", ""),
            ("redis+sentinel://ann:s@h1:1,h2:2/main/3", "redis+sentinel://h1:1,h2:2/main/3"),
            (
                "redis+sentinel://h1,h2/main?sentinel_user=bob&sentinel_password=secret&ca=c.pem",
                "redis+sentinel://h1,h2/main?ca=c.pem",
            ),
            ("redis+sentinel://h1/main?sentinel_password=secret", "redis+sentinel://h1/main"),
            ("redis+sentinel://a,b:s@a,b/main", "redis+sentinel://a,b/main"),
            ("redis+cluster://ann:s@h1:1,h2:2", "redis+cluster://h1:1,h2:2"),
            ("redis+quorum://ann:s@h1:1,h2,h3/2", "redis+quorum://h1:1,h2,h3/2"),
        ] {
            assert_eq!(without_login(with), without);
        }
        for plain in ["local:", "local:///a folder", "memory:", "redis://host/?", "valkey://h:1/2"]
        {
            assert_eq!(without_login(plain), plain);
        }
    }
}
