//! The server: the store, its bounds, and the way of a request.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use axum::response::IntoResponse;
use tenure::{Error, Tenure};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::access::Access;
use crate::door::{Door, keys::Keys, lists::Lists, sessions::Sessions};
use crate::hosts::Hosts;
use crate::link::Link;
use crate::listener::{self, Bounds, Handler};
use crate::problem::Problem;
use crate::terraform::Handles;
use crate::watcher::Watcher;
use crate::word::Word;
use crate::{door, gate, page, terraform};

/// Connects to the store.
pub type Connect = Box<dyn Fn(Client) -> Connecting + Send + Sync>;

/// What a client of the store is for. The watcher has one of its own: a reply with 10,000 locks must not delay that of an
/// acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// For requests. It is connected, and used, on the runtime that serves them.
    Door,
    /// For the watcher, on a thread of its own.
    Watcher,
}

type Connecting = Pin<Box<dyn Future<Output = Result<Tenure, Error>> + Send>>;

/// The bounds of the server. Each is far below what the machine can do, and above what clients need.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Those of the connections.
    pub bounds: Bounds,
    /// How many requests wait for a lock at once.
    pub waiting: usize,
    /// How many event streams there are at once.
    pub streams: usize,
    /// How long a request may wait. An event stream may wait for as long as it is open.
    pub longest_wait: Duration,
    /// How many bytes of large lists may wait for their clients to read them.
    pub list_bytes: usize,
}

impl Limits {
    /// The bounds of a server with so many connections. Streams and waiting requests together never take all of them: an eighth is
    /// for requests that are answered at once, such as a release.
    #[must_use]
    pub fn of_connections(connections: usize) -> Self {
        let bounds = Bounds { connections, ..Bounds::default() };
        let (streams, waiting) = (connections / 2, connections * 3 / 8);
        let longest_wait = Duration::from_secs(300);
        let list_bytes = 128 << 20;
        Self { bounds, waiting: waiting.max(1), streams: streams.max(1), longest_wait, list_bytes }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::of_connections(Bounds::default().connections)
    }
}

/// What is served, and to whom.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

struct Inner {
    connect: Connect,
    tenure: Link,
    watching: Link,
    access: Access,
    hosts: Hosts,
    limits: Limits,
    waiting: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    door: Door,
    terraform: Handles,
    watcher: Arc<Watcher>,
    stopping: watch::Sender<bool>,
    /// Where forced releases are logged.
    log: fn(&str),
}

impl Server {
    /// A server of the store that `connect` connects to: at the first request, so that a store that is down keeps it from
    /// nothing but locks.
    pub fn new(
        connect: Connect,
        access: Access,
        hosts: Hosts,
        limits: Limits,
        log: fn(&str),
    ) -> Self {
        Self(Arc::new(Inner {
            connect,
            tenure: Link::default(),
            watching: Link::default(),
            access,
            hosts,
            limits,
            waiting: Arc::new(Semaphore::new(limits.waiting)),
            streams: Arc::new(Semaphore::new(limits.streams)),
            door: Door {
                keys: Keys::default(),
                lists: Lists::new(limits.list_bytes),
                sessions: Sessions::default(),
            },
            terraform: Handles::default(),
            watcher: Watcher::new(),
            stopping: watch::Sender::new(false),
            log,
        }))
    }

    /// Serves until `stop` completes. Then waiting requests are refused, the locks of event streams are released, and
    /// connections end, within the time of grace. A lock whose handle a client has stays held.
    pub async fn run(
        self,
        listener: TcpListener,
        tls: Option<TlsAcceptor>,
        stop: impl Future<Output = ()>,
    ) {
        if let Err(error) = self.0.watcher.clone().start(self.clone()) {
            self.log(&format!("the dashboard shows nothing: no thread could be started: {error}"));
        }
        let mut since = None;
        let stop = async {
            stop.await;
            since = Some(Instant::now());
            let _ = self.0.stopping.send_replace(true);
        };
        let bounds = self.0.limits.bounds;
        listener::serve(listener, tls, self.clone(), bounds, stop).await;
        // One time of grace for both: releases are sent while connections end.
        let passed = since.map_or(Duration::ZERO, |since| since.elapsed());
        if let Some(tenure) = self.0.tenure.get() {
            tenure.flush(bounds.grace.saturating_sub(passed)).await;
        }
    }

    /// The client for requests. Whatever keeps it from connecting is no fault of a request.
    pub(crate) async fn tenure(&self) -> Result<&Tenure, Problem> {
        let tenure = self.0.tenure.get_or_connect(|| (self.0.connect)(Client::Door)).await;
        tenure.map_err(|why| Problem::of_word(Word::Unavailable, &*why))
    }

    /// The watcher's own client.
    pub(crate) async fn watching(&self) -> Result<&Tenure, Arc<str>> {
        self.0.watching.get_or_connect(|| (self.0.connect)(Client::Watcher)).await
    }

    pub(crate) fn access(&self) -> &Access {
        &self.0.access
    }

    pub(crate) fn hosts(&self) -> &Hosts {
        &self.0.hosts
    }

    pub(crate) fn door(&self) -> &Door {
        &self.0.door
    }

    pub(crate) fn terraform(&self) -> &Handles {
        &self.0.terraform
    }

    pub(crate) fn watcher(&self) -> &Arc<Watcher> {
        &self.0.watcher
    }

    pub(crate) fn longest_wait(&self) -> Duration {
        self.0.limits.longest_wait
    }

    pub(crate) fn log(&self, what: &str) {
        (self.0.log)(what);
    }

    /// A place among the requests that wait.
    pub(crate) fn wait_place(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let place = self.0.waiting.clone().try_acquire_owned();
        place.map_err(|_| Problem::overloaded("requests are waiting for locks"))
    }

    /// A place among the event streams.
    pub(crate) fn stream_place(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let place = self.0.streams.clone().try_acquire_owned();
        place.map_err(|_| Problem::overloaded("event streams are open"))
    }

    /// Completes when the server is being stopped.
    pub(crate) async fn stopped(&self) {
        let mut stopping = self.0.stopping.subscribe();
        let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
    }

    async fn answer(&self, request: Request) -> Result<Response<Body>, Problem> {
        if let Some(problem) = gate::refusal(self, &request) {
            return Err(problem);
        }
        let path = request.uri().path();
        if let Some(answer) = page::answer(&request) {
            return answer;
        }
        match path.strip_prefix("/v1/") {
            Some(rest) if rest.starts_with("terraform/") => {
                Box::pin(terraform::answer(self, request)).await
            }
            Some(_) => Box::pin(door::answer(self, request)).await,
            None => Err(Problem::not_found()),
        }
    }
}

impl Handler for Server {
    async fn handle(&self, request: Request) -> Response<Body> {
        gate::closed(self.answer(request).await.map_err(IntoResponse::into_response))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_waiting_requests_leave_connections_for_others() {
        for connections in 3..=4096 {
            let limits = Limits::of_connections(connections);
            let long = limits.streams + limits.waiting;
            assert!(long < connections && long >= connections / 2, "{limits:?}");
        }
    }
}
