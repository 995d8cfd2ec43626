//! Streams to a server, with TLS or without: no delay, keepalive and a timeout for a dead peer.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::Handle;

use super::address::Endpoint;
use super::socket::{Receiver, Socket};
use super::tls::Tls;
use crate::error::StoreError;
use crate::parking::Waiting;

/// How long connecting may take, including the TLS handshake.
pub(super) const CONNECT_TIME: Duration = Duration::from_secs(2);

/// How many bytes are read at once.
const CHUNK: usize = 64 * 1024;

/// A connection of any kind, which any thread may read and write.
pub(super) enum Stream {
    Plain(Socket),
    Tls(Box<Tls>),
}

/// The result of one read.
pub(super) struct Taken {
    /// How many bytes; zero when the peer has closed.
    pub(super) bytes: usize,
    /// No more bytes were available.
    pub(super) is_all: bool,
}

/// Connects, within [`CONNECT_TIME`].
pub(super) async fn open(endpoint: &Endpoint) -> Result<Stream, StoreError> {
    let opening = tokio::time::timeout(CONNECT_TIME, connect(endpoint));
    opening.await.unwrap_or_else(|_| {
        // A server without TLS may read the handshake as the beginning of a command, and wait for its rest.
        let hint = if matches!(endpoint, Endpoint::Tls { .. }) {
            ": it may not speak TLS; then write redis:// for rediss://"
        } else {
            ""
        };
        Err(StoreError::refused(format!("{endpoint} did not answer within {CONNECT_TIME:?}{hint}")))
    })
}

/// Whether connections are refused, so that no process listens there. False if the peer is only silent.
pub(super) async fn refuses(endpoint: &Endpoint) -> bool {
    let connected = async {
        match endpoint {
            Endpoint::Tcp(host, port) | Endpoint::Tls { host, port, .. } => {
                TcpStream::connect((host.as_str(), *port)).await.err()
            }
            Endpoint::Unix(path) => Socket::connect_to(path).await.err(),
        }
    };
    let failed = tokio::time::timeout(CONNECT_TIME, connected).await.ok().flatten();
    failed.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

async fn connect(endpoint: &Endpoint) -> Result<Stream, StoreError> {
    match endpoint {
        Endpoint::Tcp(host, port) => tcp(endpoint, host, *port).await.map(Stream::Plain),
        Endpoint::Tls { host, port, name, trust } => {
            let socket = tcp(endpoint, host, *port).await?;
            let tls = Tls::over(socket, endpoint, name.clone(), trust).await?;
            Ok(Stream::Tls(Box::new(tls)))
        }
        Endpoint::Unix(path) => {
            let socket = Socket::connect_to(path).await;
            socket.map(Stream::Plain).map_err(|error| failed(endpoint, &error))
        }
    }
}

async fn tcp(endpoint: &Endpoint, host: &str, port: u16) -> Result<Socket, StoreError> {
    let opened = TcpStream::connect((host, port)).await;
    let undelayed = opened.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
    let socket = undelayed.and_then(Socket::over_tcp);
    socket.map_err(|error| failed(endpoint, &error))
}

fn failed(endpoint: &Endpoint, error: &io::Error) -> StoreError {
    StoreError::refused(format!("could not connect to {endpoint}: {error}"))
}

impl Stream {
    /// Writes as much as the socket accepts. If it accepts nothing, the next call must begin with the same
    /// bytes: TLS may have encrypted them already.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_write(bytes),
            Self::Tls(tls) => tls.try_write(bytes),
        }
    }

    /// Reads the available bytes to the end of `into`.
    pub(super) fn try_read(&self, into: &mut Vec<u8>) -> io::Result<Taken> {
        into.reserve(CHUNK);
        match self {
            Self::Plain(socket) => {
                let bytes = socket.try_read(into)?;
                // Also after a short read: the end of the connection may be behind these bytes, and both were one event.
                Ok(Taken { bytes, is_all: false })
            }
            Self::Tls(tls) => tls.try_read(into),
        }
    }

    /// Waits for bytes, and reads them to the end of `into`; zero when the peer has closed. For one task.
    pub(super) async fn read(&self, into: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            match self.try_read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable().await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                taken => return taken.map(|taken| taken.bytes),
            }
            // The peer could send control messages of TLS for ever: other tasks get their turn.
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Resolves when data may have arrived since the last attempt to read. For one task.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.socket().readable().await
    }

    /// Whether there are bytes to read.
    pub(super) fn is_readable(&self) -> bool {
        self.socket().is_readable()
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        self.socket().writable().await
    }

    /// Sets whether the I/O thread is woken when data arrives.
    pub(super) fn watch(&self, is_watched: bool) {
        self.socket().watch(is_watched);
    }

    /// Makes closing it discard unsent bytes and reset the connection. Otherwise the kernel would continue to send
    /// them, to a server that may perform them much later. A Unix socket does not need this: written bytes are in the
    /// server's buffer at once.
    pub(super) fn reset_when_closed(&self) {
        self.socket().reset_when_closed();
    }

    /// Lets a task on another runtime wait for data.
    pub(super) fn receiver_on(&self, runtime: &Handle) -> io::Result<Receiver> {
        self.socket().receiver_on(runtime)
    }

    /// Blocks this thread until there are bytes to read, it is woken or the time is over: see
    /// [`Socket::until_readable`].
    pub(super) fn until_readable(&self, waiting: &Waiting, at_most: Duration) -> Option<bool> {
        self.socket().until_readable(waiting, at_most)
    }

    fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => tls.socket(),
        }
    }
}
