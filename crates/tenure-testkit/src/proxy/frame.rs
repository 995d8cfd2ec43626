//! One whole message of the protocol: its bytes as they came, and as much of its meaning as the proxy
//! needs, which is the items of the outermost array.
//!
//! All of RESP 2 and RESP 3 is read, except the streamed kinds (`$?`, `*?`), which no server sends. A
//! message is bounded in every way, so that nonsense ends in an error and not in all of the memory.

use std::io::{self, BufRead, ErrorKind, Read};
use std::ops::Range;

/// Lengths, numbers, statuses and errors.
const LONGEST_LINE: u64 = 64 * 1024;
/// Far more than a test sends, and far less than a test machine has.
const LARGEST_FRAME: usize = 64 * 1024 * 1024;
/// The deepest real reply, that of COMMAND, has less than ten levels.
const DEEPEST: usize = 64;

#[derive(Debug)]
pub(super) struct Frame {
    bytes: Vec<u8>,
    kind: u8,
    items: Vec<Item>,
}

/// A value within the frame: the byte it begins with, and where its content is.
#[derive(Debug)]
struct Item {
    kind: u8,
    content: Range<usize>,
}

impl Frame {
    /// Reads the next one; none if the stream ends where a message could begin.
    pub(super) fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut parser = Parser { reader, bytes: Vec::new() };
        match parser.value(0) {
            Ok((item, items)) => Ok(Some(Self { bytes: parser.bytes, kind: item.kind, items })),
            Err(error) if is_end(&error) && parser.bytes.is_empty() => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Whether this is what RESP 3 pushes without being asked.
    pub(super) fn is_push(&self) -> bool {
        self.kind == b'>'
    }

    pub(super) fn is_array(&self) -> bool {
        self.kind == b'*'
    }

    /// The content of an item of an array or push.
    pub(super) fn item(&self, index: usize) -> Option<&[u8]> {
        self.items.get(index).map(|item| &self.bytes[item.content.clone()])
    }

    /// The items, if this is an array of nothing but strings.
    pub(super) fn strings(&self) -> Option<impl Iterator<Item = &[u8]>> {
        let is_string = |item: &Item| item.kind == b'$';
        let all = self.is_array() && self.items.iter().all(is_string);
        all.then(|| self.items.iter().map(|item| &self.bytes[item.content.clone()]))
    }
}

struct Parser<'a, R> {
    reader: &'a mut R,
    bytes: Vec<u8>,
}

impl<R: BufRead> Parser<'_, R> {
    /// Reads one value, and says what it is and what it holds.
    fn value(&mut self, depth: usize) -> io::Result<(Item, Vec<Item>)> {
        if depth > DEEPEST {
            return Err(malformed("nested too deeply"));
        }
        let (kind, content) = self.line()?;
        let item = Item { kind, content: content.clone() };
        match kind {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => Ok((item, Vec::new())),
            b'$' | b'=' | b'!' => Ok((Item { kind, content: self.string(content)? }, Vec::new())),
            b'*' | b'~' | b'>' => Ok((item, self.items(content, 1, depth)?)),
            b'%' => Ok((item, self.items(content, 2, depth)?)),
            b'|' => {
                // Attributes belong to the value that follows them.
                self.items(content, 2, depth)?;
                self.value(depth + 1)
            }
            _ => Err(malformed("an unknown kind of value")),
        }
    }

    /// Reads a line: the byte it begins with, and where the rest of it is.
    fn line(&mut self) -> io::Result<(u8, Range<usize>)> {
        let start = self.bytes.len();
        self.reader.take(LONGEST_LINE).read_until(b'\n', &mut self.bytes)?;
        let line = &self.bytes[start..];
        if line.len() as u64 == LONGEST_LINE {
            return Err(malformed("a line that does not end"));
        }
        if start > LARGEST_FRAME {
            return Err(malformed("a message that is too large"));
        }
        match line.strip_suffix(b"\r\n") {
            Some([kind, ..]) => Ok((*kind, start + 1..self.bytes.len() - 2)),
            Some([]) => Err(malformed("an empty line")),
            None if line.ends_with(b"\n") => Err(malformed("a line without a return")),
            None => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Reads the content of a string, whose length is there.
    fn string(&mut self, length: Range<usize>) -> io::Result<Range<usize>> {
        let start = self.bytes.len();
        let Some(length) = self.length(length)? else {
            return Ok(start..start);
        };
        // Grows with what comes, rather than with what is announced.
        let whole = length as u64 + 2;
        let read = self.reader.take(whole).read_to_end(&mut self.bytes)?;
        match self.bytes[start..].get(length..) {
            Some(b"\r\n") => Ok(start..start + length),
            Some(_) if read as u64 == whole => Err(malformed("a string longer than announced")),
            _ => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Reads the values of an array or the like, whose number, times `each`, is there.
    fn items(&mut self, count: Range<usize>, each: usize, depth: usize) -> io::Result<Vec<Item>> {
        let count = self.length(count)?.unwrap_or(0);
        (0..count * each).map(|_| self.value(depth + 1).map(|(item, _)| item)).collect()
    }

    /// The length or number that is there; none for the −1 that means nil.
    fn length(&self, text: Range<usize>) -> io::Result<Option<usize>> {
        let text = std::str::from_utf8(&self.bytes[text]).unwrap_or_default();
        if text == "-1" {
            return Ok(None);
        }
        let length = text.parse().map_err(|_| malformed("no length"))?;
        if self.bytes.len().saturating_add(length) > LARGEST_FRAME {
            return Err(malformed("a message that is too large"));
        }
        Ok(Some(length))
    }
}

pub(super) fn malformed(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

fn is_end(error: &io::Error) -> bool {
    error.kind() == ErrorKind::UnexpectedEof
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| Frame::read(&mut bytes).unwrap()).map(Frame::into_bytes).collect()
    }

    fn refusal(mut bytes: &[u8]) -> ErrorKind {
        Frame::read(&mut bytes).unwrap_err().kind()
    }

    #[test]
    fn messages_of_every_kind_are_told_apart() {
        let messages: [&[u8]; 18] = [
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":-7\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"$2\r\n\r\n\r\n",
            b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n",
            b"_\r\n",
            b"#t\r\n",
            b",1.5\r\n",
            b"(99\r\n",
            b"!3\r\nERR\r\n",
            b"=6\r\ntxt:hi\r\n",
            b"~1\r\n:1\r\n",
            b"%1\r\n+a\r\n*1\r\n:1\r\n",
            b">2\r\n+a\r\n%0\r\n",
            b"|1\r\n+ttl\r\n:9\r\n:1\r\n",
        ];
        assert_eq!(frames(&messages.concat()), messages);
    }

    #[test]
    fn items_are_those_of_the_outermost_array() {
        let bytes = b">3\r\n$7\r\nmessage\r\n*1\r\n:5\r\n$2\r\n\xff\0\r\n";
        let frame = Frame::read(&mut &bytes[..]).unwrap().unwrap();
        assert!(frame.is_push() && !frame.is_array() && frame.strings().is_none());
        assert_eq!(frame.item(0), Some(&b"message"[..]));
        assert_eq!(frame.item(2), Some(&b"\xff\0"[..]));
        assert_eq!(frame.item(3), None);
    }

    #[test]
    fn an_end_between_messages_is_clean_and_one_within_is_not() {
        assert!(Frame::read(&mut &b""[..]).unwrap().is_none());
        for bytes in [&b"+O"[..], b"$4\r\nab", b"$2\r\nab", b"*2\r\n:1\r\n", b"$1\r\na\r"] {
            assert_eq!(refusal(bytes), ErrorKind::UnexpectedEof, "{bytes:?}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let deep = b"*1\r\n".repeat(DEEPEST + 2);
        let long = b"+".repeat(70_000);
        let huge = b"$99999999999\r\n";
        for bytes in
            [&b"PING\r\n"[..], b"\r\n", b"+a\n", b"$x\r\n", b"$1\r\nabc", huge, &deep, &long]
        {
            assert_eq!(refusal(bytes), ErrorKind::InvalidData);
        }
    }
}
