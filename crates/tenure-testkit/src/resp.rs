//! A minimal blocking client of the Redis protocol (RESP 2), so that a test can look at the server
//! without trusting the library under test.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a read may take: far longer than any answer, short enough that a hanging test is noticed.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the server answered.
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
    /// Several replies; none for nil.
    Array(Option<Vec<Reply>>),
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
    /// If nobody listens there.
    pub fn unix(path: &Path) -> io::Result<Self> {
        Self::over(Stream::Unix(UnixStream::connect(path)?))
    }

    /// Connects to a server's port.
    ///
    /// # Errors
    ///
    /// If nobody listens there.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        Self::over(Stream::Tcp(stream))
    }

    fn over(stream: Stream) -> io::Result<Self> {
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
        match self.stream.get_ref() {
            Stream::Unix(stream) => stream.set_read_timeout(Some(patience)),
            Stream::Tcp(stream) => stream.set_read_timeout(Some(patience)),
        }
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
        self.stream.get_mut().write_all(&encode(words))
    }

    /// Reads the next reply, or the next message of a subscription.
    ///
    /// # Errors
    ///
    /// If the connection breaks, stays silent for longer than the patience, or the answer is no proper RESP.
    pub fn read(&mut self) -> io::Result<Reply> {
        decode(&mut self.stream)
    }
}

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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

fn decode(reader: &mut impl BufRead) -> io::Result<Reply> {
    let line = line(reader)?;
    let mut kind = line.chars();
    match (kind.next(), kind.as_str()) {
        (Some('+'), text) => Ok(Reply::Simple(text.to_owned())),
        (Some('-'), text) => Ok(Reply::Error(text.to_owned())),
        (Some(':'), number) => Ok(Reply::Integer(number.parse().map_err(malformed)?)),
        (Some('$'), length) => Ok(Reply::Bulk(bulk(reader, length)?)),
        (Some('*'), length) => Ok(Reply::Array(array(reader, length)?)),
        _ => Err(malformed(line)),
    }
}

/// One line, without its end.
fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(text) => Ok(text.to_owned()),
        None => {
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"))
        }
    }
}

fn bulk(reader: &mut impl BufRead, length: &str) -> io::Result<Option<Vec<u8>>> {
    let Some(length) = length_of(length)? else {
        return Ok(None);
    };
    let mut bytes = vec![0; length + 2];
    reader.read_exact(&mut bytes)?;
    if bytes.split_off(length) != b"\r\n" {
        return Err(malformed("a string that is longer than announced"));
    }
    Ok(Some(bytes))
}

fn array(reader: &mut impl BufRead, length: &str) -> io::Result<Option<Vec<Reply>>> {
    let Some(length) = length_of(length)? else {
        return Ok(None);
    };
    (0..length).map(|_| decode(reader)).collect::<io::Result<_>>().map(Some)
}

/// A length; none for the −1 that means nil.
fn length_of(text: &str) -> io::Result<Option<usize>> {
    if text == "-1" { Ok(None) } else { text.parse().map(Some).map_err(malformed) }
}

fn malformed(what: impl ToString) -> io::Error {
    let what = what.to_string();
    io::Error::new(io::ErrorKind::InvalidData, format!("the server's answer is no RESP: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(mut bytes: &[u8]) -> io::Result<Reply> {
        decode(&mut bytes)
    }

    #[test]
    fn a_command_is_an_array_of_strings() {
        assert_eq!(encode(&["GET", "é"]), "*2\r\n$3\r\nGET\r\n$2\r\né\r\n".as_bytes());
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        assert_eq!(decoded(b"+OK\r\n").unwrap(), Reply::Simple("OK".into()));
        assert_eq!(decoded(b"-ERR no\r\n").unwrap(), Reply::Error("ERR no".into()));
        assert_eq!(decoded(b":-7\r\n").unwrap(), Reply::Integer(-7));
        assert_eq!(decoded(b"$2\r\n\r\n\r\n").unwrap(), Reply::Bulk(Some(b"\r\n".to_vec())));
        assert!(decoded(b"$-1\r\n").unwrap().is_nil());
        assert!(decoded(b"*-1\r\n").unwrap().is_nil());
        let nested = Reply::Array(Some(vec![Reply::Integer(1), Reply::Array(Some(vec![]))]));
        assert_eq!(decoded(b"*2\r\n:1\r\n*0\r\n").unwrap(), nested);
    }

    #[test]
    fn a_cut_or_false_answer_is_an_error() {
        assert_eq!(decoded(b"").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(decoded(b"+O").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(decoded(b"$4\r\nab").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(decoded(b"$1\r\nabc").unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(decoded(b"HTTP/1.1\r\n").unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
