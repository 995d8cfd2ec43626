//! Sockets of Windows, which only the I/O thread reads.
//!
//! Windows reports no readiness: the runtime emulates it, and must see every read and write, in order to ask for the
//! next event. So both go through the runtime's own stream, which any thread may use, but which wakes only the runtime
//! that it was made on.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use super::KEEPALIVE;
use crate::parking::Waiting;

/// A connected socket.
pub(in crate::engine::redis) struct Socket(TcpStream);

impl Socket {
    /// Takes a connection over TCP.
    pub(in crate::engine::redis) fn over_tcp(stream: TcpStream) -> io::Result<Self> {
        sockopt::set_socket_keepalive(&stream, true)?;
        // Not before Windows 10 1709. Without them, the next request notices that the peer is dead.
        let _ = sockopt::set_tcp_keepidle(&stream, KEEPALIVE);
        let _ = sockopt::set_tcp_keepintvl(&stream, KEEPALIVE);
        Ok(Self(stream))
    }

    /// Always an error: a URL with a Unix socket is refused before.
    pub(in crate::engine::redis) async fn connect_to(_: &Path) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Reads available bytes to the end of `into`, up to its capacity; zero when the peer has closed.
    pub(in crate::engine::redis) fn try_read(&self, into: &mut Vec<u8>) -> io::Result<usize> {
        self.0.try_read_buf(into)
    }

    /// Reads available bytes, as many as fit; zero when the peer has closed.
    pub(in crate::engine::redis) fn try_read_into(&self, room: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(room)
    }

    /// Writes as much as the socket accepts.
    pub(in crate::engine::redis) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    /// Writes as much of several pieces as the socket accepts.
    pub(in crate::engine::redis) fn try_write_vectored(
        &self,
        pieces: &[io::IoSlice<'_>],
    ) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    /// Whether there are bytes to read.
    pub(in crate::engine::redis) fn is_readable(&self) -> bool {
        let mut wanted = [PollFd::new(&self.0, PollFlags::IN)];
        let found = rustix::event::poll(&mut wanted, Some(&Timespec::default()));
        found.is_ok_and(|found| found > 0)
    }

    /// Resolves when data may have arrived: to be awaited after [`Self::try_read`] has read nothing. For one task.
    pub(in crate::engine::redis) async fn readable(&self) -> io::Result<()> {
        self.0.readable().await
    }

    /// Resolves when the socket accepts more.
    pub(in crate::engine::redis) async fn writable(&self) -> io::Result<()> {
        self.0.writable().await
    }

    /// Always an error: the stream wakes the I/O thread only.
    pub(in crate::engine::redis) fn receiver_on(&self, _: &Handle) -> io::Result<Receiver> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The I/O thread is always woken.
    pub(in crate::engine::redis) fn watch(&self, _: bool) {}

    /// None: another thread must read.
    pub(in crate::engine::redis) fn until_readable(
        &self,
        _: &Waiting,
        _: Duration,
    ) -> Option<bool> {
        None
    }

    /// Makes closing it discard unsent bytes and reset the connection.
    pub(in crate::engine::redis) fn reset_when_closed(&self) {
        // If this fails, the socket is closed as usual.
        let _ = self.0.set_zero_linger();
    }
}

/// There is none: see [`Socket::receiver_on`].
pub(in crate::engine::redis) struct Receiver(Infallible);

impl Receiver {
    pub(in crate::engine::redis) async fn readable(&self) -> io::Result<()> {
        match self.0 {}
    }
}
