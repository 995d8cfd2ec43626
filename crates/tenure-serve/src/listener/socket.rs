//! A client's connection, which can be looked at while the HTTP implementation has it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::clock::pause;

/// How much the kernel keeps for a client that does not read; it would take several MB.
const SEND_BYTES: usize = 128 * 1024;

/// How often it is looked whether the client has hung up.
const LOOK: Duration = Duration::from_secs(1);

/// After how much silence the kernel asks whether the client is there, and how often then.
const SILENCE: Duration = Duration::from_secs(10);
const ASK: Duration = Duration::from_secs(5);
const QUESTIONS: u32 = 3;

#[derive(Clone)]
pub(super) struct Socket(Arc<TcpStream>);

impl Socket {
    /// A client that does not acknowledge anything for `stalled` is gone: what is written to it would fit the kernel's buffer for
    /// a quarter of an hour.
    pub(super) fn new(stream: TcpStream, stalled: Duration) -> Self {
        // Answers are small, and are written at once.
        let _ = stream.set_nodelay(true);
        let _ = sockopt::set_socket_send_buffer_size(&stream, SEND_BYTES);
        let _ = sockopt::set_socket_keepalive(&stream, true);
        let _ = sockopt::set_tcp_keepidle(&stream, SILENCE);
        let _ = sockopt::set_tcp_keepintvl(&stream, ASK);
        let _ = sockopt::set_tcp_keepcnt(&stream, QUESTIONS);
        #[cfg(target_os = "linux")]
        let _ = sockopt::set_tcp_user_timeout(
            &stream,
            u32::try_from(stalled.as_millis()).unwrap_or(u32::MAX),
        );
        #[cfg(not(target_os = "linux"))]
        let _ = stalled;
        Self(Arc::new(stream))
    }

    /// Resolves when the client has closed its end, or is gone. The HTTP implementation does not notice it while a byte that it has
    /// not read follows the request.
    pub(super) async fn hung_up(&self) {
        loop {
            pause(LOOK).await;
            if self.has_hung_up() {
                return;
            }
        }
    }

    /// Whether the client has closed its end, or is gone.
    pub(super) fn has_hung_up(&self) -> bool {
        #[cfg(target_os = "linux")]
        let asked = PollFlags::RDHUP;
        #[cfg(not(target_os = "linux"))]
        let asked = PollFlags::HUP;
        let mut watched = [PollFd::new(&*self.0, asked)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut watched, Some(&at_once)).is_ok_and(|count| count > 0)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Socket {
    /// Writes when there is room.
    fn write(
        &self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match write(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream| stream.try_write(data))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream| stream.try_write_vectored(data))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(shutdown(&*self.0, Shutdown::Write)?))
    }
}
