//! The messages between `tenure` and its guardian, over a socket. A closed socket means that the peer has ended.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, send, sendmsg,
};
use rustix::time::{ClockId, clock_gettime};

/// A point in time that all processes agree on: nanoseconds since boot, with the time for which the machine was
/// suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let now = Duration::try_from(now).unwrap_or_default();
        Self(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }

    pub(crate) fn before(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The time until then; zero if it has passed.
    pub(crate) fn left(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(Self::now().0))
    }
}

/// What happens to the command if `tenure` is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnKilled {
    /// It is ended before the lease is over.
    End = b'e' as isize,
    /// It goes on, with the lock: the guardian stays until all of its processes have ended.
    Hold = b'h' as isize,
    /// It goes on, without the lock.
    Leave = b'l' as isize,
}

/// The guardian's order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) on_killed: OnKilled,
    /// Whether the command is ended if no message arrives before the deadline.
    pub(crate) is_timed: bool,
    /// The time between TERM and KILL.
    pub(crate) grace: Duration,
    /// Until when the lock is held, if no message follows.
    pub(crate) deadline: Moment,
    pub(crate) command: Vec<OsString>,
}

/// The messages after the order, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    // From the guardian.
    Ready,
    Started(i32),
    Failed(i32),
    Stopped(i32),
    Ended {
        status: u8,
        signal: u8,
    },
    Overdue,
    // From `tenure`.
    /// The lock is held until then, if no message follows.
    Held(Moment),
    /// The command is being ended; it is killed at that time.
    Ending(Moment),
    /// The command has ended.
    Finished,
}

/// Every message has the same length, and is sent by one call, so that it is never read in part.
const BYTES: usize = 9;

impl Message {
    fn encode(self) -> [u8; BYTES] {
        let (kind, value) = match self {
            Self::Ready => (b'r', 0),
            Self::Started(pid) => (b'p', u64::from(pid.cast_unsigned())),
            Self::Failed(error) => (b'f', u64::from(error.cast_unsigned())),
            Self::Stopped(signal) => (b's', u64::from(signal.cast_unsigned())),
            Self::Ended { status, signal } => {
                (b'e', u64::from(u16::from_be_bytes([status, signal])))
            }
            Self::Overdue => (b'o', 0),
            Self::Held(until) => (b'h', until.0),
            Self::Ending(at) => (b'k', at.0),
            Self::Finished => (b'b', 0),
        };
        let mut bytes = [kind; BYTES];
        bytes[1..].copy_from_slice(&value.to_be_bytes());
        bytes
    }

    fn decode([kind, value @ ..]: [u8; BYTES]) -> Option<Self> {
        let number = i32::from_be_bytes([value[4], value[5], value[6], value[7]]);
        Some(match kind {
            b'r' => Self::Ready,
            b'p' => Self::Started(number),
            b'f' => Self::Failed(number),
            b's' => Self::Stopped(number),
            b'e' => Self::Ended { status: value[6], signal: value[7] },
            b'o' => Self::Overdue,
            b'h' => Self::Held(Moment(u64::from_be_bytes(value))),
            b'k' => Self::Ending(Moment(u64::from_be_bytes(value))),
            b'b' => Self::Finished,
            _ => return None,
        })
    }
}

/// The result of a read.
pub(crate) enum Received {
    Message(Message),
    /// No message in time.
    Timeout,
    /// The peer has ended.
    Closed,
}

/// One end of the socket.
pub(crate) struct Link(pub(crate) UnixStream);

impl Link {
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Self(ours), theirs.into()))
    }

    /// Sends a message without blocking. The socket is full only if the peer has been stopped for so long that it
    /// has missed other messages before.
    pub(crate) fn send(&self, message: Message) {
        let _ = send(&self.0, &message.encode(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Waits for a message; without a time limit if none is given.
    pub(crate) fn receive(&self, within: Option<Duration>) -> Received {
        // A read timeout of zero would be an error.
        let within = within.map(|time| time.max(Duration::from_millis(1)));
        let mut bytes = [0; BYTES];
        let read = self.0.set_read_timeout(within).and_then(|()| (&self.0).read(&mut bytes));
        match read {
            Ok(BYTES) => Message::decode(bytes).map_or(Received::Closed, Received::Message),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Received::Timeout,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Received::Timeout,
            _ => Received::Closed,
        }
    }

    /// Sends an order, with the files that become the command's standard ones.
    pub(crate) fn send_order(&self, order: &Order, files: [impl AsFd; 3]) -> io::Result<()> {
        let files = [files[0].as_fd(), files[1].as_fd(), files[2].as_fd()];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        let bytes = order.encode();
        let length = u64::try_from(bytes.len()).map_err(|_| Errno::TOOBIG)?.to_be_bytes();
        sendmsg(&self.0, &[IoSlice::new(&length)], &mut control, SendFlags::NOSIGNAL)?;
        (&self.0).write_all(&bytes)
    }

    /// Waits for an order.
    pub(crate) fn receive_order(&self) -> io::Result<(Order, Vec<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(3))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut length = [0; 8];
        let into = &mut [IoSliceMut::new(&mut length)];
        let received = recvmsg(&self.0, into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let messages = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let files = messages.flatten().collect();
        let unfit = || io::Error::from(Errno::BADMSG);
        if received.bytes != length.len() {
            return Err(unfit());
        }
        let length = usize::try_from(u64::from_be_bytes(length)).map_err(|_| unfit())?;
        let mut bytes = vec![0; length];
        (&self.0).read_exact(&mut bytes)?;
        Ok((Order::decode(&bytes).ok_or_else(unfit)?, files))
    }
}

impl Order {
    fn encode(&self) -> Vec<u8> {
        let grace = u64::try_from(self.grace.as_nanos()).unwrap_or(u64::MAX);
        let mut bytes = vec![self.on_killed as u8, u8::from(self.is_timed)];
        bytes.extend(grace.to_be_bytes());
        bytes.extend(self.deadline.0.to_be_bytes());
        // No argument contains a zero byte.
        bytes.extend(self.command.join(OsStr::new("\0")).as_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, command) = bytes.split_at_checked(18)?;
        let number = |bytes: &[u8]| Some(u64::from_be_bytes(bytes.try_into().ok()?));
        let choices = [OnKilled::End, OnKilled::Hold, OnKilled::Leave];
        Some(Self {
            on_killed: choices.into_iter().find(|it| *it as u8 == head[0])?,
            is_timed: head[1] != 0,
            grace: Duration::from_nanos(number(&head[2..10])?),
            deadline: Moment(number(&head[10..])?),
            command: command.split(|&it| it == 0).map(|it| OsString::from_vec(it.into())).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let (ours, theirs) = Link::pair().unwrap();
        let theirs = Link(theirs.into());
        let messages = [
            Message::Ready,
            Message::Started(i32::MAX),
            Message::Failed(8),
            Message::Stopped(20),
            Message::Ended { status: 255, signal: 9 },
            Message::Overdue,
            Message::Held(Moment(u64::MAX)),
            Message::Ending(Moment(1)),
            Message::Finished,
        ];
        messages.iter().for_each(|&message| ours.send(message));
        for message in messages {
            assert!(
                matches!(theirs.receive(None), Received::Message(received) if received == message),
                "{message:?}"
            );
        }
        assert!(matches!(theirs.receive(Some(Duration::ZERO)), Received::Timeout));
        drop(ours);
        assert!(matches!(theirs.receive(None), Received::Closed));
    }

    #[test]
    fn an_order_comes_as_it_was_sent_with_its_files() {
        for on_killed in [OnKilled::End, OnKilled::Hold, OnKilled::Leave] {
            let command = vec!["sh".into(), OsString::new(), OsString::from_vec(vec![255, b'\n'])];
            let grace = Duration::from_millis(1234);
            let deadline = Moment(u64::MAX / 3);
            let order = Order { on_killed, is_timed: true, grace, deadline, command };
            let (ours, theirs) = Link::pair().unwrap();
            let (reader, writer) = io::pipe().unwrap();
            let files = [reader.as_fd(), writer.as_fd(), writer.as_fd()];
            ours.send_order(&order, files).unwrap();
            let (received, files) = Link(theirs.into()).receive_order().unwrap();
            assert_eq!((received, files.len()), (order, 3));
        }
    }
}
