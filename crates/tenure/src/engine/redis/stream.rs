//! Sockets to a server: told to send at once, and to notice a dead peer. With TLS or without.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;

use super::address::Endpoint;
use super::socket::{Receiver, Socket};
use super::tls::Tls;
use crate::error::StoreError;

/// How long the kernel keeps trying to deliver before it gives the connection up, in
/// milliseconds. Below a third of the default lease.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: u32 = 5_000;

/// How long a connection may be silent before the kernel asks whether the peer is there.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// How long connecting may take, the handshake of TLS included.
pub(super) const CONNECT_TIME: Duration = Duration::from_secs(2);

/// How much is read at once.
const CHUNK: usize = 64 * 1024;

/// A connection of any kind, which any thread may read and write.
pub(super) enum Stream {
    Plain(Socket),
    Tls(Box<Tls>),
}

/// What was read.
pub(super) struct Taken {
    /// How much; zero when the peer has closed.
    pub(super) bytes: usize,
    /// There was no more at that moment.
    pub(super) is_all: bool,
}

/// Connects, in time.
pub(super) async fn open(place: &Endpoint) -> Result<Stream, StoreError> {
    let opening = tokio::time::timeout(CONNECT_TIME, connect(place));
    opening.await.unwrap_or_else(|_| {
        // A server that does not know TLS may wait for the rest of what it takes for a command.
        let hint = if matches!(place, Endpoint::Tls { .. }) {
            ": it may not speak TLS; then write redis:// for rediss://"
        } else {
            ""
        };
        Err(StoreError::refused(format!("{place} did not answer within {CONNECT_TIME:?}{hint}")))
    })
}

async fn connect(place: &Endpoint) -> Result<Stream, StoreError> {
    match place {
        Endpoint::Tcp(host, port) => tcp(place, host, *port).await.map(Stream::Plain),
        Endpoint::Tls { host, port, name, trust } => {
            let socket = tcp(place, host, *port).await?;
            let tls = Tls::over(socket, place, name.clone(), trust).await?;
            Ok(Stream::Tls(Box::new(tls)))
        }
        Endpoint::Unix(path) => {
            let opened = UnixStream::connect(path).await.and_then(UnixStream::into_std);
            let socket = opened.and_then(Socket::new);
            socket.map(Stream::Plain).map_err(|error| failed(place, &error))
        }
    }
}

async fn tcp(place: &Endpoint, host: &str, port: u16) -> Result<Socket, StoreError> {
    let opened = TcpStream::connect((host, port)).await;
    let tuned = opened.and_then(|stream| tune(&stream).map(|()| stream));
    let socket = tuned.and_then(TcpStream::into_std).and_then(Socket::new);
    socket.map_err(|error| failed(place, &error))
}

fn failed(place: &Endpoint, error: &io::Error) -> StoreError {
    StoreError::refused(format!("could not connect to {place}: {error}"))
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(stream, USER_TIMEOUT)?;
    Ok(())
}

impl Stream {
    /// Writes what the socket takes. When it takes nothing, the next call must begin with the same
    /// bytes: TLS may have encrypted them already.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_write(bytes),
            Self::Tls(tls) => tls.try_write(bytes),
        }
    }

    /// Reads what is there, at the end of `into`.
    pub(super) fn try_read(&self, into: &mut Vec<u8>) -> io::Result<Taken> {
        into.reserve(CHUNK);
        match self {
            Self::Plain(socket) => {
                let room = into.capacity() - into.len();
                let bytes = socket.try_read(into)?;
                Ok(Taken { bytes, is_all: bytes < room })
            }
            Self::Tls(tls) => tls.try_read(into),
        }
    }

    /// Reads what is there or comes next, at the end of `into`; zero when the peer has closed. For one
    /// task.
    pub(super) async fn read(&self, into: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            match self.try_read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable().await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                taken => return taken.map(|taken| taken.bytes),
            }
            // Messages of TLS itself could follow one another for ever: others get their turn.
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Resolves when something may have come since it was last tried to read. For one task.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.socket().readable().await
    }

    /// Whether there is something to read.
    pub(super) fn is_readable(&self) -> bool {
        self.socket().is_readable()
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        self.socket().writable().await
    }

    /// Whether the I/O thread is woken when something arrives.
    pub(super) fn watch(&self, is_watched: bool) {
        self.socket().watch(is_watched);
    }

    /// Makes closing it throw away what has not been sent, and tell the server so. Otherwise the
    /// kernel goes on sending after the end, to a server that may act on it much later. A Unix socket
    /// needs none of it: what was written is with the server at once.
    pub(super) fn reset_when_closed(&self) {
        // Failed, it is closed as usual.
        let _ = sockopt::set_socket_linger(self.socket(), Some(Duration::ZERO));
    }

    /// What tells a task on another runtime that something may have come.
    pub(super) fn receiver_on(&self, runtime: &Handle) -> io::Result<Receiver> {
        self.socket().receiver_on(runtime)
    }

    fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => tls.socket(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}
