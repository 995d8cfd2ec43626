//! `tenure exporter`: metrics of what the store knows, for Prometheus.
//!
//! `survey` reads the locks, `page` prints them. The store is read when the page is asked for, once a second at most, so that it
//! is read as often as it is watched.

mod page;
mod survey;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex as Shared, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::routing::get;
use clap::Args;
use tenure::Tenure;
use tenure::engine::Finding;
use tenure_serve::listener::{self, Bounds};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::args::store::Store;
use crate::exec::signals::Signals;
use crate::exit::Exit;
use crate::view::help;
use crate::view::output::say;
use page::page;
use survey::Survey;

/// How many prefixes may be counted apart: each is a time series of each metric.
const MOST_PREFIXES: usize = 32;

/// A page that is younger is shown again: several servers may scrape.
const FRESH: Duration = Duration::from_secs(1);

/// How often the store is examined as `tenure doctor` does.
const EXAMINE: Duration = Duration::from_secs(60);

/// How long the store may take. Prometheus gives a page 10 s.
const PATIENCE: Duration = Duration::from_secs(4);

/// A few servers scrape; each keeps a connection.
const MOST_CONNECTIONS: usize = 64;

/// How long a page that is being sent has time at the end.
const GRACE: Duration = Duration::from_secs(1);

/// Serve metrics of the store, for Prometheus.
///
/// `/metrics` has the locks that are held and waited for, the oldest hold and the oldest wait, and the health of the store. A
/// store that cannot be reached is reported as such. It has no password: it listens on this machine only, unless another
/// address is given.
#[derive(Args)]
#[command(after_long_help = help::EXPORTER)]
pub(crate) struct Arguments {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9868")]
    listen: SocketAddr,
    /// Count the locks whose names begin with this apart, by the label `prefix`; up to 32 times
    #[arg(long, value_name = "PREFIX")]
    prefix: Vec<String>,
    /// How many locks are read at most
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    limit: usize,
    #[command(flatten)]
    store: Store,
}

pub(crate) async fn serve(arguments: Arguments) -> Result<(), ExitCode> {
    if arguments.prefix.len() > MOST_PREFIXES {
        let why = format!("{MOST_PREFIXES} prefixes at most: each is a time series of each metric");
        return Err(Exit::Usage.because(&why));
    }
    arguments.store.url().map_err(|why| Exit::Usage.because(&why))?;
    let mut signals = Signals::catch().map_err(|error| Exit::System.because(&error))?;
    let listen = arguments.listen;
    let listener = TcpListener::bind(listen)
        .await
        .map_err(|error| Exit::System.because(&format!("could not listen on {listen}: {error}")))?;
    let address = listener.local_addr().map_err(|error| Exit::System.because(&error))?;
    say(format_args!("serving http://{address}/metrics"));
    let exporter = Arc::new(Exporter { arguments, state: Mutex::default() });
    let router = Router::new().route("/metrics", get(metrics)).route("/", get(index));
    let bounds = Bounds { connections: MOST_CONNECTIONS, grace: GRACE, ..Bounds::default() };
    let mut ended_by = None;
    let stop = async { ended_by = Some(signals.end().await) };
    listener::serve(listener, None, router.with_state(exporter), bounds, stop).await;
    let signal = ended_by.map_or(0, |signal| signal.as_raw() as u8);
    Err(ExitCode::from(128 + signal))
}

type Page = ([(HeaderName, &'static str); 1], String);

async fn index() -> &'static str {
    "Tenure's exporter: the metrics are at /metrics.\n"
}

async fn metrics(State(exporter): State<Arc<Exporter>>) -> Page {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], exporter.page().await)
}

/// The store, and what was read last.
struct Exporter {
    arguments: Arguments,
    /// Held while the store is read: others wait for the same page.
    state: Mutex<Reading>,
}

#[derive(Default)]
struct Reading {
    tenure: Option<Tenure>,
    /// Written by a task: an examination takes dozens of round trips.
    findings: Arc<Shared<Vec<Finding>>>,
    examined: Option<Instant>,
    page: Option<(Instant, String)>,
}

impl Exporter {
    async fn page(&self) -> String {
        let mut reading = self.state.lock().await;
        if let Some((_, page)) = reading.page.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return page.clone();
        }
        let read = timeout(PATIENCE, self.read(&mut reading)).await.ok().flatten();
        if read.is_some() {
            reading.examine().await;
        }
        let findings = lock(&reading.findings).clone();
        let page = page(read.as_ref(), &findings);
        reading.page = Some((Instant::now(), page.clone()));
        page
    }

    /// What the store knows; none if it cannot be reached.
    async fn read(&self, reading: &mut Reading) -> Option<Survey> {
        let Arguments { prefix, limit, store, .. } = &self.arguments;
        if reading.tenure.is_none() {
            let builder = || Tenure::builder().patience(PATIENCE / 2);
            reading.tenure = store.connect_with(builder).await.ok();
        }
        let tenure = reading.tenure.as_ref()?;
        Survey::of(tenure, prefix, *limit).await.ok()
    }
}

impl Reading {
    /// Examines the store, if it is time. A store that is far away takes longer than a page may: its findings are on a later one.
    /// If it fails, the last findings stay.
    async fn examine(&mut self) {
        let is_due = self.examined.is_none_or(|at| at.elapsed() >= EXAMINE);
        let Some(tenure) = self.tenure.clone().filter(|_| is_due) else { return };
        self.examined = Some(Instant::now());
        let findings = self.findings.clone();
        let examining = tokio::spawn(async move {
            if let Ok(Ok(found)) = timeout(EXAMINE, tenure.checkup()).await {
                *lock(&findings) = found;
            }
        });
        let _ = timeout(PATIENCE / 2, examining).await;
    }
}

fn lock<T>(mutex: &Shared<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
