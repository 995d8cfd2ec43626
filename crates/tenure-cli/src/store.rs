//! Where the store is.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use tenure::{Builder, Error, Tenure};
use url::Url;

use crate::exit::Exit;

/// The variable that names it.
pub(crate) const VARIABLE: &str = "TENURE_URL";

#[derive(Args)]
pub(crate) struct Store {
    /// The store, such as redis://host, rediss://host for TLS, or local:///folder. Without it
    /// REDIS_URL is used, if it is set; otherwise `local:`, which the commands of one user on this
    /// machine share
    #[arg(long, env = VARIABLE, hide_env_values = true)]
    url: Option<String>,
}

impl Store {
    /// Connects to it. An error is told already.
    pub(crate) async fn connect(&self) -> Result<Tenure, ExitCode> {
        let connected = self.connect_with(Tenure::builder()).await;
        connected.map_err(|error| Exit::told(&error))
    }

    pub(crate) async fn connect_with(&self, builder: Builder) -> Result<Tenure, Error> {
        let redis = || std::env::var_os("REDIS_URL");
        let url = self.url.clone().map(OsString::from).or_else(redis);
        let url = url.as_deref().unwrap_or(OsStr::new("local:"));
        // What is no text is refused, as what is empty: never another store in silence.
        builder.connect(url.to_str().unwrap_or_default()).await
    }

    /// What a command that runs under a lock is told of it: where it is, so that a `tenure` in
    /// there speaks to the same store, but not with which password. None if nobody has named it:
    /// then both find it in the same way.
    pub(crate) fn for_child(&self) -> Option<String> {
        self.url.as_deref().map(without_login)
    }
}

/// The URL of a store, without who logs in and with what.
fn without_login(text: &str) -> String {
    // What cannot be read cannot be used, either.
    let Ok(mut url) = Url::parse(text) else { return String::new() };
    let is_login = |name: &str| matches!(name, "user" | "pass");
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
        ] {
            assert_eq!(without_login(with), without);
        }
        for plain in ["local:", "local:///a folder", "memory:", "redis://host/?", "valkey://h:1/2"]
        {
            assert_eq!(without_login(plain), plain);
        }
    }
}
