//! What `tenure` and its guardian say to each other: over a socket, whose end tells of an end.

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

/// A point in time that all processes agree on: nanoseconds since the machine was booted, also those for
/// which it was suspended.
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

    /// How long it is until then; zero if it is over.
    pub(crate) fn left(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(Self::now().0))
    }
}

/// What becomes of the command if `tenure` is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bequest {
    /// It is ended before the lease is over.
    End = b'e' as isize,
    /// It goes on, with the lock: the guardian stays until all of it has ended.
    Hold = b'h' as isize,
    /// It goes on, without the lock.
    Leave = b'l' as isize,
}

/// What a guardian is to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) bequest: Bequest,
    /// Whether the command is to end when nothing more was heard before the deadline.
    pub(crate) is_timed: bool,
    /// How long the command has to end itself.
    pub(crate) grace: Duration,
    /// Until when the lock is held, if nothing is heard after this.
    pub(crate) deadline: Moment,
    pub(crate) command: Vec<OsString>,
}

/// What is said after that, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    // By the guardian.
    Ready,
    Started(i32),
    Failed(i32),
    Stopped(i32),
    Ended {
        status: u8,
        signal: u8,
    },
    Overdue,
    // By `tenure`.
    /// The lock is held until then, if nothing more is heard.
    Held(Moment),
    /// The command is being ended, by force at that time.
    Ending(Moment),
    /// All is over.
    Farewell,
}

/// Every word has as many bytes, and is sent at once, so that none is ever read in part.
const BYTES: usize = 9;

impl Word {
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
            Self::Farewell => (b'b', 0),
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
            b'b' => Self::Farewell,
            _ => return None,
        })
    }
}

/// What comes next.
pub(crate) enum Heard {
    Word(Word),
    /// Nothing, in time.
    Nothing,
    /// Nothing, ever: the other has ended.
    End,
}

/// One end of the socket.
pub(crate) struct Link(pub(crate) UnixStream);

impl Link {
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Self(ours), theirs.into()))
    }

    /// Says a word, without waiting: one that is stopped for so long that nothing fits any more has missed
    /// others before.
    pub(crate) fn say(&self, word: Word) {
        let _ = send(&self.0, &word.encode(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Waits for a word; for so long, or for ever.
    pub(crate) fn hear(&self, within: Option<Duration>) -> Heard {
        // Zero would be for ever.
        let within = within.map(|time| time.max(Duration::from_millis(1)));
        let mut bytes = [0; BYTES];
        let read = self.0.set_read_timeout(within).and_then(|()| (&self.0).read(&mut bytes));
        match read {
            Ok(BYTES) => Word::decode(bytes).map_or(Heard::End, Heard::Word),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Heard::Nothing,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Heard::Nothing,
            _ => Heard::End,
        }
    }

    /// Sends an order, with the files that are to be the command's standard ones.
    pub(crate) fn order(&self, order: &Order, files: [impl AsFd; 3]) -> io::Result<()> {
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
    pub(crate) fn receive(&self) -> io::Result<(Order, Vec<OwnedFd>)> {
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
        let mut bytes = vec![self.bequest as u8, u8::from(self.is_timed)];
        bytes.extend(grace.to_be_bytes());
        bytes.extend(self.deadline.0.to_be_bytes());
        // No argument has a zero in it.
        bytes.extend(self.command.join(OsStr::new("\0")).as_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, command) = bytes.split_at_checked(18)?;
        let number = |bytes: &[u8]| Some(u64::from_be_bytes(bytes.try_into().ok()?));
        let bequests = [Bequest::End, Bequest::Hold, Bequest::Leave];
        Some(Self {
            bequest: bequests.into_iter().find(|it| *it as u8 == head[0])?,
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
        let format = [
            Word::Ready,
            Word::Started(i32::MAX),
            Word::Failed(8),
            Word::Stopped(20),
            Word::Ended { status: 255, signal: 9 },
            Word::Overdue,
            Word::Held(Moment(u64::MAX)),
            Word::Ending(Moment(1)),
            Word::Farewell,
        ];
        format.iter().for_each(|&word| ours.say(word));
        for word in format {
            assert!(matches!(theirs.hear(None), Heard::Word(heard) if heard == word), "{word:?}");
        }
        assert!(matches!(theirs.hear(Some(Duration::ZERO)), Heard::Nothing));
        drop(ours);
        assert!(matches!(theirs.hear(None), Heard::End));
    }

    #[test]
    fn an_order_comes_as_it_was_sent_with_its_files() {
        for bequest in [Bequest::End, Bequest::Hold, Bequest::Leave] {
            let command = vec!["sh".into(), OsString::new(), OsString::from_vec(vec![255, b'\n'])];
            let grace = Duration::from_millis(1234);
            let deadline = Moment(u64::MAX / 3);
            let order = Order { bequest, is_timed: true, grace, deadline, command };
            let (ours, theirs) = Link::pair().unwrap();
            let (reader, writer) = io::pipe().unwrap();
            let files = [reader.as_fd(), writer.as_fd(), writer.as_fd()];
            ours.order(&order, files).unwrap();
            let (received, files) = Link(theirs.into()).receive().unwrap();
            assert_eq!((received, files.len()), (order, 3));
        }
    }
}
