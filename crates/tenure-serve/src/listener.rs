//! Accepts HTTP connections, within bounds: their number, the time for a request's head, and the time in which a client must
//! read something of its answer. Without the last one, a client that reads nothing would keep its connection forever.

mod socket;
mod stalled;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket::Socket;
use stalled::Stalled;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::clock::pause;

/// The bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How many connections there are at most. Further ones wait to be accepted.
    pub connections: usize,
    /// How long a request's head may take, and how long an idle connection stays.
    pub head: Duration,
    /// How long a client may take to read something, when there is something to read.
    pub stalled: Duration,
    /// How long connections have time to end, once the listener stops.
    pub grace: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 2048,
            head: Duration::from_secs(15),
            stalled: Duration::from_secs(30),
            grace: Duration::from_secs(5),
        }
    }
}

/// The head of a request has some KB at most: a name of 512 bytes, encoded, has 1.5 KB.
const HEAD_BYTES: usize = 16 * 1024;

/// How many headers a request may have.
const HEADERS: usize = 64;

/// After an error of `accept`, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// The client's address, as an extension of its requests.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// The client's connection, as an extension of its requests.
#[derive(Clone)]
pub(crate) struct Client(Socket);

impl Client {
    /// Whether it has closed its end, and so does not wait for the answer any more.
    pub(crate) fn has_hung_up(&self) -> bool {
        self.0.has_hung_up()
    }
}

/// What answers requests.
pub trait Handler: Clone + Send + Sync + 'static {
    /// Answers a request.
    fn handle(&self, request: Request) -> impl Future<Output = Response<Body>> + Send;
}

impl Handler for axum::Router {
    async fn handle(&self, request: Request) -> Response<Body> {
        let mut router = self.clone();
        match tower_service::Service::call(&mut router, request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// Serves until `stop` completes; then no connection is accepted any more, and those that are open have the time of
/// grace to end.
pub async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    handler: impl Handler,
    bounds: Bounds,
    stop: impl Future<Output = ()>,
) {
    let (stopping, stopped) = watch::channel(false);
    let room = Arc::new(Semaphore::new(bounds.connections));
    let accept = async {
        loop {
            let Ok(place) = room.clone().acquire_owned().await else { return };
            let Some((stream, peer)) = accepted(&listener).await else { continue };
            let connection = Connection { handler: handler.clone(), bounds, peer, _place: place };
            tokio::spawn(connection.run(stream, tls.clone(), stopped.clone()));
        }
    };
    tokio::select! {
        () = accept => {}
        () = stop => {}
    }
    drop(listener);
    let _ = stopping.send(true);
    let all = u32::try_from(bounds.connections).unwrap_or(u32::MAX);
    let _ = timeout(bounds.grace, room.acquire_many(all)).await;
}

async fn accepted(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    match listener.accept().await {
        Ok(accepted) => Some(accepted),
        Err(error) => {
            let is_of_client = matches!(
                error.kind(),
                io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
            );
            if !is_of_client {
                pause(PAUSE).await;
            }
            None
        }
    }
}

struct Connection<H> {
    handler: H,
    bounds: Bounds,
    peer: SocketAddr,
    _place: OwnedSemaphorePermit,
}

impl<H: Handler> Connection<H> {
    async fn run(
        self,
        stream: TcpStream,
        tls: Option<TlsAcceptor>,
        stopped: watch::Receiver<bool>,
    ) {
        let socket = Socket::new(stream, self.bounds.stalled);
        let (watched, client) = (socket.clone(), Client(socket.clone()));
        let serving = async {
            match tls {
                None => self.serve(socket, client, stopped).await,
                Some(acceptor) => {
                    let handshake = timeout(self.bounds.head, acceptor.accept(socket)).await;
                    if let Ok(Ok(stream)) = handshake {
                        self.serve(stream, client, stopped).await;
                    }
                }
            }
        };
        tokio::select! {
            () = serving => {}
            // What is being answered ends with it: a waiter leaves the queue.
            () = watched.hung_up() => {}
        }
    }

    async fn serve<S>(self, stream: S, client: Client, mut stopped: watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (handler, peer) = (self.handler.clone(), Peer(self.peer));
        let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            let (handler, client) = (handler.clone(), client.clone());
            async move {
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(peer);
                request.extensions_mut().insert(client);
                Ok::<_, Infallible>(handler.handle(request).await)
            }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(self.bounds.head);
        builder.max_buf_size(HEAD_BYTES).max_headers(HEADERS);
        let io = TokioIo::new(Stalled::new(stream, self.bounds.stalled));
        let mut connection = std::pin::pin!(builder.serve_connection(io, service));
        tokio::select! {
            _ = connection.as_mut() => return,
            _ = stopped.wait_for(|is_stopping| *is_stopping) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}
