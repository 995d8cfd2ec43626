//! Sockets to a server: told to send at once, and to notice a dead peer. With TLS or without.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpStream, UnixStream};

use super::address::Place;
use super::tls::Tls;
use crate::error::Trouble;

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

/// A socket of any kind. Any thread may write; one reads.
pub(super) enum Stream {
    Tcp(TcpStream),
    Tls(Box<Tls>),
    Unix(UnixStream),
}

/// Connects, in time.
pub(super) async fn open(place: &Place) -> Result<Stream, Trouble> {
    let opening = tokio::time::timeout(CONNECT_TIME, connect(place));
    opening.await.unwrap_or_else(|_| {
        // A server that does not know TLS may wait for the rest of what it takes for a command.
        let hint = if matches!(place, Place::Tls { .. }) {
            ": it may not speak TLS; then write redis:// for rediss://"
        } else {
            ""
        };
        Err(Trouble::refused(format!("{place} did not answer within {CONNECT_TIME:?}{hint}")))
    })
}

async fn connect(place: &Place) -> Result<Stream, Trouble> {
    match place {
        Place::Tcp(host, port) => tcp(place, host, *port).await.map(Stream::Tcp),
        Place::Tls { host, port, name, trust } => {
            let socket = tcp(place, host, *port).await?;
            let tls = Tls::over(socket, place, name.clone(), trust).await?;
            Ok(Stream::Tls(Box::new(tls)))
        }
        Place::Unix(path) => {
            let opened = UnixStream::connect(path).await;
            opened.map(Stream::Unix).map_err(|error| failed(place, &error))
        }
    }
}

async fn tcp(place: &Place, host: &str, port: u16) -> Result<TcpStream, Trouble> {
    let opened = TcpStream::connect((host, port)).await;
    let tuned = opened.and_then(|stream| tune(&stream).map(|()| stream));
    tuned.map_err(|error| failed(place, &error))
}

fn failed(place: &Place, error: &io::Error) -> Trouble {
    Trouble::refused(format!("could not connect to {place}: {error}"))
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
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Tls(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.writable().await,
            Self::Tls(stream) => stream.writable().await,
            Self::Unix(stream) => stream.writable().await,
        }
    }

    /// Reads what is there, at the end of `into`; zero when the peer has closed.
    pub(super) async fn read(&self, into: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            into.reserve(CHUNK);
            let read = match self {
                Self::Tcp(stream) => {
                    stream.readable().await?;
                    stream.try_read_buf(into)
                }
                Self::Tls(stream) => {
                    stream.readable().await?;
                    stream.try_read(into)
                }
                Self::Unix(stream) => {
                    stream.readable().await?;
                    stream.try_read_buf(into)
                }
            };
            match read {
                // Messages of TLS itself could follow one another for ever: others get their turn.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::task::coop::consume_budget().await;
                }
                other => return other,
            }
        }
    }

    /// Makes closing it throw away what has not been sent, and tell the server so. Otherwise the
    /// kernel goes on sending after the end, to a server that may act on it much later. A Unix socket
    /// needs none of it: what was written is with the server at once.
    pub(super) fn reset_when_closed(&self) {
        let reset = |socket: &TcpStream| {
            // Failed, it is closed as usual.
            let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
        };
        match self {
            Self::Tcp(stream) => reset(stream),
            Self::Tls(stream) => reset(stream.socket()),
            Self::Unix(_) => {}
        }
    }
}
