//! Sockets to a server: told to send at once, and to notice a dead peer.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpStream, UnixStream};

use super::address::Place;
use crate::error::Trouble;

/// How long the kernel keeps trying to deliver before it gives the connection up, in
/// milliseconds. Below a third of the default lease.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: u32 = 5_000;

/// How long a connection may be silent before the kernel asks whether the peer is there.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// How much is read at once.
const CHUNK: usize = 64 * 1024;

/// A socket of either kind. Any thread may write; one reads.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Connects.
pub(super) async fn open(place: &Place) -> Result<Stream, Trouble> {
    let opened = match place {
        Place::Tcp(host, port) => match TcpStream::connect((host.as_str(), *port)).await {
            Ok(stream) => tune(&stream).map(|()| Stream::Tcp(stream)),
            Err(error) => Err(error),
        },
        Place::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
    };
    opened.map_err(|error| Trouble::refused(format!("could not connect to {place}: {error}")))
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
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.writable().await,
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
                Self::Unix(stream) => {
                    stream.readable().await?;
                    stream.try_read_buf(into)
                }
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
        }
    }
}
