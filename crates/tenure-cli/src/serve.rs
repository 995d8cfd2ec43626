//! `tenure serve`: the dashboard, and an HTTP interface for every language. The crate `tenure-serve` has both.

use std::env::VarError;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustix::process::{Resource, getrlimit, setrlimit};
use tenure::{Error, Tenure};
use tenure_serve::tls::{self, TlsAcceptor};
use tenure_serve::{Access, Client, Connect, Hosts, Limits, Server, Token};
use tokio::net::TcpListener;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::args::store::Store;
use crate::args::time::delay;
use crate::exec::signals::Signals;
use crate::exit::Exit;
use crate::view::output::say;
use crate::view::{about, help};

/// The variables with the tokens, where no file is given.
const TOKEN: &str = "TENURE_SERVE_TOKEN";
const READ_TOKEN: &str = "TENURE_SERVE_READ_TOKEN";

/// Open files besides those of connections.
const OTHER_FILES: u64 = 64;

/// Within this time a wrong URL is noticed: that takes no round trip.
const NOTICED: Duration = Duration::from_millis(250);

/// Serve a dashboard of the locks, and an HTTP interface to them.
///
/// It listens on this machine only, unless another address is given. Then it needs a token, and TLS.
#[derive(Args)]
#[command(after_long_help = help::SERVE)]
pub(crate) struct Arguments {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7878")]
    listen: SocketAddr,
    /// Another name under which browsers reach the server; can be repeated
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// A file with the token that clients must send; without it TENURE_SERVE_TOKEN is used
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A file with a token that allows to look, and not to act; without it TENURE_SERVE_READ_TOKEN is used
    #[arg(long, value_name = "FILE")]
    read_token_file: Option<PathBuf>,
    /// Change nothing: no lock can be acquired or released
    #[arg(long)]
    read_only: bool,
    /// The server's certificate, with those up to its authority, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// A proxy in front of this server does TLS
    #[arg(long, conflicts_with = "tls_cert")]
    behind_proxy: bool,
    /// How many connections there are at most
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// How long clients have time to end when the server is stopped
    #[arg(long, value_name = "TIME", value_parser = delay, default_value = "5s")]
    grace: Duration,
    #[command(flatten)]
    store: Store,
}

pub(crate) async fn serve(arguments: Arguments) -> Result<(), ExitCode> {
    let usage = |why: String| Exit::Usage.because(&why);
    let url = arguments.store.url().map_err(usage)?;
    let access = arguments.access().map_err(usage)?;
    arguments.check_exposure(&access).map_err(usage)?;
    let tls = arguments.tls().map_err(usage)?;
    check_url(&url).await.map_err(usage)?;
    let limits = arguments.limits();
    let mut signals = Signals::catch().map_err(|error| Exit::System.because(&error))?;
    let listen = arguments.listen;
    let listener = TcpListener::bind(listen)
        .await
        .map_err(|error| Exit::System.because(&format!("could not listen on {listen}: {error}")))?;
    let address = listener.local_addr().map_err(|error| Exit::System.because(&error))?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    say(format_args!("serving {scheme}://{address}/"));
    let hosts = Hosts::new(&arguments.host);
    let server = Server::new(connect(url), access, hosts, limits, |what| say(what));
    let mut ended_by = None;
    let stop = async { ended_by = Some(signals.end().await) };
    server.run(listener, tls, stop).await;
    let signal = ended_by.map_or(0, |signal| signal.as_raw() as u8);
    Err(ExitCode::from(128 + signal))
}

/// Refuses a URL that is wrong, which would otherwise fail every request. A store that is down may be up later.
async fn check_url(url: &str) -> Result<(), String> {
    let connecting = Tenure::builder().about(about::of_server()).connect(url);
    match timeout(NOTICED, connecting).await {
        Ok(Err(Error::Invalid(why))) => Err(why.to_string()),
        _ => Ok(()),
    }
}

/// Connects as the server, whose process lives for as long as the locks that it holds itself.
fn connect(url: String) -> Connect {
    // Each client of `memory:` has a store of its own, so there is one for both purposes.
    let shared = Arc::new(OnceCell::new());
    Box::new(move |client| {
        let (url, shared) = (url.clone(), Arc::clone(&shared));
        Box::pin(async move {
            let builder = Tenure::builder().about(about::of_server());
            if url.starts_with("memory:") {
                return shared.get_or_try_init(|| builder.connect(&url)).await.cloned();
            }
            // One thread serves: a reply that it reads itself costs no switch of threads.
            let is_network = url.contains("://") && !url.starts_with("local:");
            match client {
                Client::Door if is_network => builder.read_on_this_runtime().connect(&url).await,
                _ => builder.connect(&url).await,
            }
        })
    })
}

impl Arguments {
    fn access(&self) -> Result<Access, String> {
        let full = token(self.token_file.as_deref(), TOKEN)?;
        let read = token(self.read_token_file.as_deref(), READ_TOKEN)?;
        if full.as_ref().zip(read.as_ref()).is_some_and(|(full, read)| full.is_same(read)) {
            return Err(
                "the token for everything and the one for looking are the same: use two".into()
            );
        }
        Ok(Access { full, read, is_read_only: self.read_only })
    }

    /// Other machines must not reach locks without a token, or read it on the way.
    fn check_exposure(&self, access: &Access) -> Result<(), String> {
        let listen = self.listen;
        if self.behind_proxy && !access.has_tokens() {
            return Err(format!(
                "other machines reach this server through the proxy: name a file with a token by --token-file, or set {TOKEN}"
            ));
        }
        if listen.ip().is_loopback() {
            return Ok(());
        }
        if !access.has_tokens() {
            return Err(format!(
                "other machines reach {listen}: name a file with a token by --token-file, or set {TOKEN}"
            ));
        }
        if self.tls_cert.is_none() && !self.behind_proxy {
            return Err(format!(
                "other machines reach {listen}: name a certificate by --tls-cert and --tls-key, or say \
                 --behind-proxy if a proxy does TLS"
            ));
        }
        Ok(())
    }

    fn tls(&self) -> Result<Option<TlsAcceptor>, String> {
        let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        let acceptor = tls::acceptor(certificate, key);
        acceptor.map(Some).map_err(|error| format!("the certificate cannot be used: {error}"))
    }

    /// The bounds, as far as this process may have open files.
    fn limits(&self) -> Limits {
        let mut limits = Limits::of_connections(usize::from(self.connections).min(files()));
        limits.bounds.grace = self.grace;
        limits
    }
}

/// How many files connections may open. The limit is raised to what the system allows this user.
fn files() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(files.saturating_sub(OTHER_FILES).max(1)).unwrap_or(usize::MAX)
}

/// A token out of a file, or out of a variable.
fn token(file: Option<&Path>, variable: &str) -> Result<Option<Token>, String> {
    let (source, text) = match (file, std::env::var(variable)) {
        (Some(file), _) => {
            let path = file.display();
            let text = std::fs::read_to_string(file);
            let text = text.map_err(|error| format!("the token in {path} cannot be read: {error}"));
            (path.to_string(), text?)
        }
        (None, Ok(text)) => (variable.to_owned(), text),
        (None, Err(VarError::NotPresent)) => return Ok(None),
        // Not the same as none: every client could do everything.
        (None, Err(VarError::NotUnicode(_))) => (variable.to_owned(), String::new()),
    };
    Token::new(&text).map(Some).map_err(|wrong| format!("{source}: {wrong}"))
}
