//! A minimal blocking client of the Redis protocol (RESP 2, and RESP 3 after `HELLO 3`), so that a test
//! can inspect the server without trusting the library under test.

pub(crate) mod decode;

use std::io::{self, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::stream::Stream;
use decode::Message;

/// How long a read may take: far longer than any answer, short enough that a hanging test is noticed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status, such as `OK`.
    Simple(String),
    /// A refusal, such as `WRONGTYPE …`.
    Error(String),
    /// A number.
    Integer(i64),
    /// A string of bytes; none for nil.
    Bulk(Option<Vec<u8>>),
    /// Several replies, or a set of them; none for nil.
    Array(Option<Vec<Reply>>),
    /// A truth (RESP 3).
    Boolean(bool),
    /// A fraction or a huge number, as it was written (RESP 3).
    Number(String),
    /// Pairs (RESP 3).
    Map(Vec<(Reply, Reply)>),
    /// An unsolicited message: one of a subscription, for example (RESP 3).
    Push(Vec<Reply>),
}

impl Reply {
    /// The text of a status or of a string; none for anything else.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Simple(text) => Some(text.clone()),
            Self::Bulk(Some(bytes)) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }

    /// The elements of an array, a set or a push; none for anything else.
    pub(crate) fn elements(&self) -> &[Self] {
        match self {
            Self::Array(Some(elements)) | Self::Push(elements) => elements,
            _ => &[],
        }
    }

    /// The bytes of a string; none for anything else.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bulk(bytes) => bytes.as_deref(),
            _ => None,
        }
    }

    /// Whether this is nil.
    #[must_use]
    pub fn is_nil(&self) -> bool {
        matches!(self, Self::Bulk(None) | Self::Array(None))
    }
}

/// An open connection to a server.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<Stream>,
}

impl Connection {
    /// Connects to a server's Unix socket.
    ///
    /// # Errors
    ///
    /// If no server listens there.
    pub fn unix(path: &Path) -> io::Result<Self> {
        Self::over(Stream::unix(path)?)
    }

    /// Connects to a server's port.
    ///
    /// # Errors
    ///
    /// If no server listens there.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        Self::over(Stream::tcp(address)?)
    }

    pub(crate) fn over(stream: Stream) -> io::Result<Self> {
        let connection = Self { stream: BufReader::new(stream) };
        connection.set_patience(PATIENCE)?;
        Ok(connection)
    }

    /// Sets how long a read may take: ten seconds, unless set.
    ///
    /// # Errors
    ///
    /// If `patience` is zero.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(patience)
    }

    /// Sends one command and reads its reply.
    ///
    /// # Errors
    ///
    /// If the connection breaks or the answer is no proper RESP. A refusal by the server is
    /// [`Reply::Error`], no error of this kind.
    pub fn command<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<Reply> {
        self.send(words)?;
        self.read()
    }

    /// Sends one command.
    ///
    /// # Errors
    ///
    /// If the connection is broken.
    pub fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<()> {
        self.stream.get_ref().write_all(&encode(words))
    }

    /// Reads the next reply, or the next message of a subscription.
    ///
    /// # Errors
    ///
    /// If the connection breaks, stays silent for longer than the patience, or the answer is no proper RESP.
    pub fn read(&mut self) -> io::Result<Reply> {
        let message = Message::read(&mut self.stream)?.ok_or_else(|| {
            io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")
        })?;
        Ok(message.value)
    }
}

fn encode<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_an_array_of_strings() {
        assert_eq!(encode(&["GET", "é"]), "*2\r\n$3\r\nGET\r\n$2\r\né\r\n".as_bytes());
    }
}
