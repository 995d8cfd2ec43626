//! The decoder of the protocol, for the plain client and for the proxy alike: reads one message, and keeps its
//! bytes, which the proxy forwards unchanged.
//!
//! It reads all of RESP 2 and RESP 3 except the streamed kinds (`$?`, `*?`), which no server sends. Length, depth
//! and size are limited, so that malformed input ends in an error instead of exhausting the memory.

use std::io::{self, BufRead, ErrorKind, Read};
use std::ops::Range;

use super::Reply;

/// Lengths, numbers, statuses and errors.
const LONGEST_LINE: u64 = 64 * 1024;
/// Far more than a test sends, and far less than a test machine has.
const LARGEST_MESSAGE: usize = 64 * 1024 * 1024;
/// The deepest real reply, that of COMMAND, has less than ten levels.
const DEEPEST: usize = 64;

/// One message, decoded and as it arrived.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) value: Reply,
    pub(crate) bytes: Vec<u8>,
}

impl Message {
    /// Reads the next message; none if the stream ends where a message could begin.
    pub(crate) fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut decoder = Decoder { reader, bytes: Vec::new() };
        match decoder.value(0) {
            Ok(value) => Ok(Some(Self { value, bytes: decoder.bytes })),
            Err(error) if is_end(&error) && decoder.bytes.is_empty() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The error for input that is not RESP, or not what the reader expects.
pub(crate) fn malformed(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("malformed RESP: {what}"))
}

struct Decoder<'a, R> {
    reader: &'a mut R,
    bytes: Vec<u8>,
}

impl<R: BufRead> Decoder<'_, R> {
    fn value(&mut self, depth: usize) -> io::Result<Reply> {
        if depth > DEEPEST {
            return Err(malformed("nested too deeply"));
        }
        let (kind, line) = self.line()?;
        match kind {
            b'+' => Ok(Reply::Simple(self.text(line))),
            b'-' => Ok(Reply::Error(self.text(line))),
            b':' => Ok(Reply::Integer(self.integer(line)?)),
            b'$' => Ok(Reply::Bulk(self.string(line)?)),
            b'*' | b'~' => Ok(Reply::Array(self.array(line, depth)?)),
            _ => self.resp3(kind, line, depth),
        }
    }

    /// The kinds that came with RESP 3.
    fn resp3(&mut self, kind: u8, line: Range<usize>, depth: usize) -> io::Result<Reply> {
        match kind {
            b'_' => Ok(Reply::Bulk(None)),
            b'#' => Ok(Reply::Boolean(self.bytes[line] == *b"t")),
            b',' | b'(' => Ok(Reply::Number(self.text(line))),
            b'!' => Ok(Reply::Error(lossy(&self.string(line)?.unwrap_or_default()))),
            // The first four bytes, such as `txt:`, name the format.
            b'=' => {
                Ok(Reply::Bulk(self.string(line)?.and_then(|text| Some(text.get(4..)?.to_vec()))))
            }
            b'>' => Ok(Reply::Push(self.array(line, depth)?.unwrap_or_default())),
            b'%' => Ok(Reply::Map(self.map(line, depth)?)),
            b'|' => {
                // Attributes, which a client may ignore; the value itself follows.
                self.map(line, depth)?;
                self.value(depth + 1)
            }
            _ => Err(malformed("an unknown kind of value")),
        }
    }

    /// Reads a line: its first byte, and where the rest of it is.
    fn line(&mut self) -> io::Result<(u8, Range<usize>)> {
        let start = self.bytes.len();
        self.reader.take(LONGEST_LINE).read_until(b'\n', &mut self.bytes)?;
        let line = &self.bytes[start..];
        if line.len() as u64 == LONGEST_LINE {
            return Err(malformed("a line that does not end"));
        }
        if start > LARGEST_MESSAGE {
            return Err(malformed("a message that is too large"));
        }
        match line.strip_suffix(b"\r\n") {
            Some([kind, ..]) => Ok((*kind, start + 1..self.bytes.len() - 2)),
            Some([]) => Err(malformed("an empty line")),
            None if line.ends_with(b"\n") => Err(malformed("a line without a carriage return")),
            None => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Reads the content of a string whose length is in this line; none for nil.
    fn string(&mut self, line: Range<usize>) -> io::Result<Option<Vec<u8>>> {
        let Some(length) = self.length(line)? else {
            return Ok(None);
        };
        let start = self.bytes.len();
        // The buffer grows with the bytes that arrive, not with the announced length.
        let whole = length as u64 + 2;
        let read = self.reader.take(whole).read_to_end(&mut self.bytes)?;
        match self.bytes[start..].split_at_checked(length) {
            Some((content, b"\r\n")) => Ok(Some(content.to_vec())),
            Some(_) if read as u64 == whole => Err(malformed("a string longer than announced")),
            _ => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Reads as many values as this line says; none for nil.
    fn array(&mut self, line: Range<usize>, depth: usize) -> io::Result<Option<Vec<Reply>>> {
        let Some(count) = self.length(line)? else {
            return Ok(None);
        };
        (0..count).map(|_| self.value(depth + 1)).collect::<io::Result<_>>().map(Some)
    }

    fn map(&mut self, line: Range<usize>, depth: usize) -> io::Result<Vec<(Reply, Reply)>> {
        let count = self.length(line)?.unwrap_or(0);
        (0..count).map(|_| Ok((self.value(depth + 1)?, self.value(depth + 1)?))).collect()
    }

    /// A length or a count; none for the −1 that means nil.
    fn length(&self, line: Range<usize>) -> io::Result<Option<usize>> {
        let length = self.integer(line)?;
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(|_| malformed("a negative length"))?;
        if self.bytes.len().saturating_add(length) > LARGEST_MESSAGE {
            return Err(malformed("a message that is too large"));
        }
        Ok(Some(length))
    }

    fn integer(&self, line: Range<usize>) -> io::Result<i64> {
        let digits = std::str::from_utf8(&self.bytes[line]).unwrap_or_default();
        digits.parse().map_err(|_| malformed("a number was expected"))
    }

    fn text(&self, line: Range<usize>) -> String {
        lossy(&self.bytes[line])
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_end(error: &io::Error) -> bool {
    error.kind() == ErrorKind::UnexpectedEof
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(mut bytes: &[u8]) -> Reply {
        Message::read(&mut bytes).unwrap().unwrap().value
    }

    fn refusal(mut bytes: &[u8]) -> ErrorKind {
        Message::read(&mut bytes).unwrap_err().kind()
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        assert_eq!(decoded(b"+OK\r\n"), Reply::Simple("OK".into()));
        assert_eq!(decoded(b"-ERR no\r\n"), Reply::Error("ERR no".into()));
        assert_eq!(decoded(b":-7\r\n"), Reply::Integer(-7));
        assert_eq!(decoded(b"$2\r\n\r\n\r\n"), Reply::Bulk(Some(b"\r\n".to_vec())));
        assert!(decoded(b"$-1\r\n").is_nil());
        assert!(decoded(b"*-1\r\n").is_nil());
        let nested = Reply::Array(Some(vec![Reply::Integer(1), Reply::Array(Some(vec![]))]));
        assert_eq!(decoded(b"*2\r\n:1\r\n*0\r\n"), nested);
    }

    #[test]
    fn every_kind_of_a_resp_3_reply_is_read() {
        let bulk = |text: &str| Reply::Bulk(Some(text.into()));
        assert!(decoded(b"_\r\n").is_nil());
        assert_eq!(decoded(b"#t\r\n"), Reply::Boolean(true));
        assert_eq!(decoded(b",1.5\r\n"), Reply::Number("1.5".into()));
        assert_eq!(decoded(b"(99\r\n"), Reply::Number("99".into()));
        assert_eq!(decoded(b"!6\r\nERR no\r\n"), Reply::Error("ERR no".into()));
        assert_eq!(decoded(b"=6\r\ntxt:hi\r\n"), bulk("hi"));
        assert_eq!(decoded(b"~1\r\n:1\r\n"), Reply::Array(Some(vec![Reply::Integer(1)])));
        assert_eq!(decoded(b">1\r\n$1\r\na\r\n"), Reply::Push(vec![bulk("a")]));
        let map = decoded(b"%1\r\n$1\r\na\r\n:1\r\n");
        assert_eq!(map, Reply::Map(vec![(bulk("a"), Reply::Integer(1))]));
        assert_eq!(decoded(b"|1\r\n+ttl\r\n:9\r\n:1\r\n"), Reply::Integer(1));
    }

    #[test]
    fn messages_are_separated_and_keep_their_bytes() {
        let messages: [&[u8]; 9] = [
            b"+OK\r\n",
            b"$-1\r\n",
            b"*0\r\n",
            b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n",
            b"!3\r\nERR\r\n",
            b"=6\r\ntxt:hi\r\n",
            b"%1\r\n+a\r\n*1\r\n:1\r\n",
            b">2\r\n+a\r\n%0\r\n",
            b"|1\r\n+ttl\r\n:9\r\n:1\r\n",
        ];
        let all = messages.concat();
        let mut rest = &all[..];
        let read: Vec<_> = std::iter::from_fn(|| Message::read(&mut rest).unwrap()).collect();
        assert!(read.iter().map(|message| &message.bytes[..]).eq(messages));
    }

    #[test]
    fn an_end_between_messages_is_clean_and_one_within_is_not() {
        assert!(Message::read(&mut &b""[..]).unwrap().is_none());
        for bytes in [&b"+O"[..], b"$4\r\nab", b"$2\r\nab", b"*2\r\n:1\r\n", b"$1\r\na\r"] {
            assert_eq!(refusal(bytes), ErrorKind::UnexpectedEof, "{bytes:?}");
        }
    }

    #[test]
    fn malformed_input_is_refused() {
        let deep = b"*1\r\n".repeat(DEEPEST + 2);
        let long = b"+".repeat(70_000);
        let huge = b"$99999999999\r\n";
        for bytes in [
            &b"HTTP/1.1\r\n"[..],
            b"\r\n",
            b"+a\n",
            b":x\r\n",
            b"$x\r\n",
            b"$-2\r\n",
            b"$1\r\nabc",
            huge,
            &deep,
            &long,
        ] {
            assert_eq!(refusal(bytes), ErrorKind::InvalidData);
        }
    }
}
