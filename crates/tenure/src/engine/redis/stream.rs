//! Sockets to a server: told to send at once, and to notice a dead peer.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{self, AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::address::Place;
use crate::error::Trouble;

/// How long the kernel keeps trying to deliver before it gives the connection up, in
/// milliseconds. Below a third of the default lease.
const USER_TIMEOUT: u32 = 5_000;

/// How long a connection may be silent before the kernel asks whether the peer is there.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// A socket of either kind.
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

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
