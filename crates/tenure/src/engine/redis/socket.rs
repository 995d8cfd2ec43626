//! A socket that any thread may read and write, without waiting; and waiting for it, on the I/O thread.
//!
//! A runtime that knows a socket wakes its thread whenever something arrives, also where another thread
//! reads. So the runtime does not know the socket, but a set of its own kind (an epoll), in which the socket
//! is the only member. Whether the socket counts in that set can be changed from any thread, and costs one
//! system call: see [`Socket::watch`]. `unsafe` is allowed here for one call: to register that set.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{SendAncillaryBuffer, SendFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use watch::Watch;

/// A connected socket.
pub(super) struct Socket {
    socket: OwnedFd,
    /// Is readable when the socket is, and is watched.
    reading: AsyncFd<Watch>,
}

impl Socket {
    /// Takes over a socket that does not block. It is watched. To be called on the I/O thread.
    pub(super) fn new(socket: impl Into<OwnedFd>) -> io::Result<Self> {
        let socket = socket.into();
        let watch = Watch::for_reading(&socket)?;
        Ok(Self { reading: register(watch, Interest::READABLE)?, socket })
    }

    /// Reads what is there, at the end of `into`, as far as there is room; zero when the peer has closed.
    pub(super) fn try_read(&self, into: &mut Vec<u8>) -> io::Result<usize> {
        Ok(rustix::io::read(&self.socket, spare_capacity(into))?)
    }

    /// Reads what is there, as far as there is room; zero when the peer has closed.
    pub(super) fn try_read_into(&self, room: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.socket, room)?)
    }

    /// Writes what the socket takes.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        // A peer that is gone must not end a process that does not expect a signal.
        Ok(rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL)?)
    }

    /// Writes what the socket takes of several pieces.
    pub(super) fn try_write_vectored(&self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let mut nothing = SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(&self.socket, pieces, &mut nothing, SendFlags::NOSIGNAL)?)
    }

    /// Whether there is something to read.
    pub(super) fn is_readable(&self) -> bool {
        let mut wanted = [PollFd::new(&self.socket, PollFlags::IN)];
        let found = rustix::event::poll(&mut wanted, Some(&Timespec::default()));
        found.is_ok_and(|found| found > 0)
    }

    /// Resolves when something may have come since the last time: to be asked after [`Self::try_read`] has
    /// found nothing, or less than there was room for. For one task.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.reading.readable().await?.clear_ready();
        Ok(())
    }

    /// Resolves when the socket takes more.
    pub(super) async fn writable(&self) -> io::Result<()> {
        let (watch, interest) = Watch::for_writing(&self.socket)?;
        register(watch, interest)?.ready(interest).await?.retain_ready();
        Ok(())
    }

    /// What tells a task on another runtime that something may have come.
    pub(super) fn receiver_on(&self, runtime: &Handle) -> io::Result<Receiver> {
        let watch = Watch::for_reading(&self.socket)?;
        let _entered = runtime.enter();
        register(watch, Interest::READABLE).map(Receiver)
    }

    /// Whether the I/O thread is woken when something arrives. It is at once, if something has.
    pub(super) fn watch(&self, is_watched: bool) {
        // It can only fail for want of memory. Then it stays as it was, and those who look for answers that
        // are overdue try again.
        let _ = self.reading.get_ref().set(&self.socket, is_watched);
    }
}

/// Tells a task on another runtime that something may have come.
pub(super) struct Receiver(AsyncFd<Watch>);

impl Receiver {
    /// As [`Socket::readable`].
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}

/// Has the I/O thread's runtime wait for it.
#[expect(unsafe_code, reason = "a runtime must trust its users with what is open")]
fn register(watch: Watch, interest: Interest) -> io::Result<AsyncFd<Watch>> {
    // SAFETY: a watch owns its file descriptor, never closes or replaces it before it is dropped, and
    // always names this one.
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

    /// What can be watched of a socket for reading.
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

        /// It is added anew, rather than changed: a member that was ready before, and was read since, still
        /// counts as known to be ready, and would not be told of again.
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

/// Elsewhere the I/O thread is woken in any case, and finds at times that another has read.
#[cfg(not(target_os = "linux"))]
mod watch {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd, RawFd};

    use tokio::io::Interest;

    /// Another name of the socket.
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
