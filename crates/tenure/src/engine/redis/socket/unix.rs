//! Sockets of Unix systems, which any thread may read.
//!
//! A runtime with which a socket is registered wakes its thread whenever data arrives, also if another thread reads
//! it. So the registered descriptor is not the socket, but an epoll instance whose only member is the socket. Any
//! thread can add it to, or delete it from, that instance with one system call: see [`Socket::watch`]. `unsafe` is
//! allowed here for one call: to register that instance.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{SendAncillaryBuffer, SendFlags, sockopt};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;

use super::KEEPALIVE;
use crate::parking::Waiting;
use watch::Watch;

/// After how many milliseconds without acknowledgement the kernel closes the connection. Below a third of
/// the default lease.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: u32 = 5_000;

/// A closed peer must not end the process with SIGPIPE. Apple's systems have an option of the socket for that.
#[cfg(not(target_vendor = "apple"))]
const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;
#[cfg(target_vendor = "apple")]
const NO_SIGNAL: SendFlags = SendFlags::empty();

/// A connected socket.
pub(in crate::engine::redis) struct Socket {
    socket: OwnedFd,
    /// Readable when the socket is readable and watched.
    reading: AsyncFd<Watch>,
}

impl Socket {
    /// Takes a connection over TCP. To be called on the I/O thread.
    pub(in crate::engine::redis) fn over_tcp(stream: TcpStream) -> io::Result<Self> {
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, KEEPALIVE)?;
        sockopt::set_tcp_keepintvl(&stream, KEEPALIVE)?;
        #[cfg(target_os = "linux")]
        sockopt::set_tcp_user_timeout(&stream, USER_TIMEOUT)?;
        Self::new(stream.into_std()?)
    }

    /// Connects to a Unix socket. To be called on the I/O thread.
    pub(in crate::engine::redis) async fn connect_to(path: &Path) -> io::Result<Self> {
        Self::new(UnixStream::connect(path).await?.into_std()?)
    }

    /// Takes a non-blocking socket, which is watched at first.
    fn new(socket: impl Into<OwnedFd>) -> io::Result<Self> {
        let socket = socket.into();
        #[cfg(target_vendor = "apple")]
        sockopt::set_socket_nosigpipe(&socket, true)?;
        let watch = Watch::for_reading(&socket)?;
        Ok(Self { reading: register(watch, Interest::READABLE)?, socket })
    }

    /// Reads available bytes to the end of `into`, up to its capacity; zero when the peer has closed.
    pub(in crate::engine::redis) fn try_read(&self, into: &mut Vec<u8>) -> io::Result<usize> {
        Ok(rustix::io::read(&self.socket, spare_capacity(into))?)
    }

    /// Reads available bytes, as many as fit; zero when the peer has closed.
    pub(in crate::engine::redis) fn try_read_into(&self, room: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.socket, room)?)
    }

    /// Writes as much as the socket accepts.
    pub(in crate::engine::redis) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.socket, bytes, NO_SIGNAL)?)
    }

    /// Writes as much of several pieces as the socket accepts.
    pub(in crate::engine::redis) fn try_write_vectored(
        &self,
        pieces: &[io::IoSlice<'_>],
    ) -> io::Result<usize> {
        let mut nothing = SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(&self.socket, pieces, &mut nothing, NO_SIGNAL)?)
    }

    /// Whether there are bytes to read.
    pub(in crate::engine::redis) fn is_readable(&self) -> bool {
        let mut wanted = [PollFd::new(&self.socket, PollFlags::IN)];
        let found = rustix::event::poll(&mut wanted, Some(&Timespec::default()));
        found.is_ok_and(|found| found > 0)
    }

    /// Resolves when data may have arrived since the last time: to be awaited after [`Self::try_read`] has
    /// read nothing, or less than fits. For one task.
    pub(in crate::engine::redis) async fn readable(&self) -> io::Result<()> {
        self.reading.readable().await?.clear_ready();
        Ok(())
    }

    /// Resolves when the socket accepts more.
    pub(in crate::engine::redis) async fn writable(&self) -> io::Result<()> {
        let (watch, interest) = Watch::for_writing(&self.socket)?;
        register(watch, interest)?.ready(interest).await?.retain_ready();
        Ok(())
    }

    /// Lets a task on another runtime wait for data.
    pub(in crate::engine::redis) fn receiver_on(&self, runtime: &Handle) -> io::Result<Receiver> {
        let watch = Watch::for_reading(&self.socket)?;
        let _entered = runtime.enter();
        register(watch, Interest::READABLE).map(Receiver)
    }

    /// Sets whether the I/O thread is woken when data arrives; at once, if data has arrived.
    pub(in crate::engine::redis) fn watch(&self, is_watched: bool) {
        // It can only fail for lack of memory. Then nothing changes, and the check for overdue replies
        // tries again.
        let _ = self.reading.get_ref().set(&self.socket, is_watched);
    }

    /// Blocks this thread until there are bytes to read, which returns true, or until it is woken or the time is
    /// over. None if it cannot wait so: another thread must read.
    pub(in crate::engine::redis) fn until_readable(
        &self,
        waiting: &Waiting,
        at_most: Duration,
    ) -> Option<bool> {
        waiting.until_readable(self.as_fd(), at_most)
    }

    /// Makes closing it discard unsent bytes and reset the connection.
    pub(in crate::engine::redis) fn reset_when_closed(&self) {
        // If this fails, the socket is closed as usual.
        let _ = sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
    }
}

/// Lets a task on another runtime wait for data.
pub(in crate::engine::redis) struct Receiver(AsyncFd<Watch>);

impl Receiver {
    /// As [`Socket::readable`].
    pub(in crate::engine::redis) async fn readable(&self) -> io::Result<()> {
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}

/// Registers a watch with the current runtime.
#[expect(unsafe_code, reason = "a runtime must trust that the descriptor stays open")]
fn register(watch: Watch, interest: Interest) -> io::Result<AsyncFd<Watch>> {
    // SAFETY: a watch owns its file descriptor, never closes or replaces it before it is dropped, and
    // always returns this one.
    let registered = unsafe { AsyncFd::register_with_interest(watch, interest) };
    Ok(registered?)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(target_os = "linux")]
mod watch {
    use std::io;
    use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
    use tokio::io::Interest;

    /// The events that wake a reader.
    const READING: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);

    /// An epoll with one member.
    pub(super) struct Watch(OwnedFd);

    impl Watch {
        pub(super) fn for_reading(socket: &OwnedFd) -> io::Result<Self> {
            Self::of(socket, READING)
        }

        /// It is readable when the socket is writable.
        pub(super) fn for_writing(socket: &OwnedFd) -> io::Result<(Self, Interest)> {
            Ok((Self::of(socket, EventFlags::OUT)?, Interest::READABLE))
        }

        fn of(socket: &OwnedFd, events: EventFlags) -> io::Result<Self> {
            let watch = epoll::create(CreateFlags::CLOEXEC)?;
            epoll::add(&watch, socket.as_fd(), EventData::new_u64(0), events)?;
            Ok(Self(watch))
        }

        /// The socket is added again, rather than modified: a member that was ready before, and has been read since,
        /// is still in the instance's ready list, and its next event would not be reported.
        pub(super) fn set(&self, socket: &OwnedFd, is_watched: bool) -> io::Result<()> {
            if is_watched {
                epoll::add(&self.0, socket.as_fd(), EventData::new_u64(0), READING)?;
            } else {
                epoll::delete(&self.0, socket.as_fd())?;
            }
            Ok(())
        }
    }

    impl AsRawFd for Watch {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_raw_fd()
        }
    }
}

/// On other systems the I/O thread is always woken, and may find that another thread has read.
#[cfg(not(target_os = "linux"))]
mod watch {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd, RawFd};

    use tokio::io::Interest;

    /// A duplicate of the socket's descriptor.
    pub(super) struct Watch(OwnedFd);

    impl Watch {
        pub(super) fn for_reading(socket: &OwnedFd) -> io::Result<Self> {
            Ok(Self(socket.try_clone()?))
        }

        pub(super) fn for_writing(socket: &OwnedFd) -> io::Result<(Self, Interest)> {
            Ok((Self(socket.try_clone()?), Interest::WRITABLE))
        }

        pub(super) fn set(&self, _: &OwnedFd, _: bool) -> io::Result<()> {
            Ok(())
        }
    }

    impl AsRawFd for Watch {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_raw_fd()
        }
    }
}
