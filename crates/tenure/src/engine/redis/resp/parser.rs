//! An incremental parser of replies.
//!
//! It resumes where it stopped: however the bytes are split, each is read once or twice, so the time is
//! linear in their number. And it is bounded: a reply costs its bytes and its items' space in
//! memory, and one that costs more than the limit is an error, at its length line if that is enough to know.

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

use super::Reply;

/// The longest line: a length, a number, a status or an error. The longest of them, an error of a
/// script, quotes a few hundred bytes.
const LINE: usize = 64 * 1024;

/// The deepest nesting of arrays: no server nests deeper.
const DEPTH: usize = 16;

/// The memory that an item takes, beyond its bytes.
const ITEM: usize = size_of::<Reply>();

/// The least number of bytes that an item of an array takes on the wire.
const SHORTEST: usize = b"+\r\n".len();

/// A buffer that became larger than this is not kept.
const KEPT: usize = 1024 * 1024;

/// The received bytes are not RESP, or longer than any expected reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Garbled {
    NotResp,
    TooLong,
}

impl fmt::Display for Garbled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotResp => "the server does not speak RESP",
            Self::TooLong => "the server's answer is too long",
        })
    }
}

/// Parses replies from bytes that arrive in pieces.
pub(in super::super) struct Parser {
    /// The memory that a reply may take.
    limit: usize,
    bytes: Vec<u8>,
    /// Everything before this index is parsed.
    at: usize,
    /// No line ends between `at` and this index.
    searched: usize,
    /// The length of the next text, once its length line is parsed.
    text: Option<usize>,
    /// Incomplete arrays, each nested in the previous one.
    open: Vec<Open>,
    /// The memory that the reply has taken so far.
    cost: usize,
}

struct Open {
    replies: Vec<Reply>,
    missing: usize,
}

impl Parser {
    pub(in super::super) fn new(limit: usize) -> Self {
        let (bytes, open) = (Vec::new(), Vec::new());
        Self { limit, bytes, at: 0, searched: 0, text: None, open, cost: 0 }
    }

    /// The buffer to which received bytes are appended.
    pub(in super::super) fn buffer(&mut self) -> &mut Vec<u8> {
        if self.at == self.bytes.len() {
            self.bytes.clear();
            if self.bytes.capacity() > KEPT {
                self.bytes = Vec::new();
            }
        } else {
            // The rest is the beginning of one item. It is moved once: then `at` stays zero
            // until the item is complete.
            self.bytes.drain(..self.at);
        }
        self.searched -= self.at;
        self.at = 0;
        &mut self.bytes
    }

    /// The next reply; none if more bytes are needed. After an error the parser must not be used.
    pub(in super::super) fn next(&mut self) -> Result<Option<Reply>, Garbled> {
        while let Some(item) = self.item()? {
            if let Some(reply) = item.and_then(|item| self.close(item)) {
                self.cost = 0;
                return Ok(Some(reply));
            }
        }
        Ok(None)
    }

    /// One item: complete, or an inner none after the length line of an array or a text. An outer none if
    /// more bytes are needed.
    #[expect(clippy::option_option, reason = "more bytes are needed, or more items")]
    fn item(&mut self) -> Result<Option<Option<Reply>>, Garbled> {
        if let Some(length) = self.text {
            return Ok(self.take_text(length)?.map(Some));
        }
        let Some(line) = self.take_line()? else { return Ok(None) };
        self.charge(line.len())?;
        let (kind, rest) = self.bytes[line].split_first().ok_or(Garbled::NotResp)?;
        let words = || String::from_utf8_lossy(rest).into_owned();
        let number = || {
            let digits = std::str::from_utf8(rest).ok();
            digits.and_then(|digits| digits.parse::<i64>().ok()).ok_or(Garbled::NotResp)
        };
        Ok(Some(match kind {
            b'+' => Some(Reply::Status(words())),
            b'-' => Some(Reply::Error(words())),
            b':' => Some(Reply::Integer(number()?)),
            b'$' => match number()? {
                -1 => Some(Reply::Nil),
                length => return self.begin_text(length),
            },
            b'*' => match number()? {
                -1 => Some(Reply::Nil),
                0 => Some(Reply::Array(Vec::new())),
                count => self.begin_array(count)?,
            },
            _ => return Err(Garbled::NotResp),
        }))
    }

    /// Adds a complete item to its array; returns the reply if that completes it.
    fn close(&mut self, mut reply: Reply) -> Option<Reply> {
        while let Some(array) = self.open.last_mut() {
            array.replies.push(reply);
            array.missing -= 1;
            if array.missing > 0 {
                return None;
            }
            reply = Reply::Array(self.open.pop()?.replies);
        }
        Some(reply)
    }

    #[expect(clippy::option_option, reason = "as for an item")]
    fn begin_text(&mut self, length: i64) -> Result<Option<Option<Reply>>, Garbled> {
        let length = usize::try_from(length).map_err(|_| Garbled::NotResp)?;
        self.charge(length)?;
        Ok(self.take_text(length)?.map(Some))
    }

    fn begin_array(&mut self, count: i64) -> Result<Option<Reply>, Garbled> {
        let count = usize::try_from(count).map_err(|_| Garbled::NotResp)?;
        if self.open.len() >= DEPTH {
            return Err(Garbled::NotResp);
        }
        // Items are charged as they arrive; if they are sure to exceed the limit, fail now.
        let least = count.saturating_mul(ITEM + SHORTEST);
        if least > self.limit - self.cost {
            return Err(Garbled::TooLong);
        }
        self.open.push(Open { replies: Vec::new(), missing: count });
        Ok(None)
    }

    fn charge(&mut self, bytes: usize) -> Result<(), Garbled> {
        self.cost = self.cost.saturating_add(bytes).saturating_add(ITEM);
        if self.cost > self.limit { Err(Garbled::TooLong) } else { Ok(()) }
    }

    /// The next line, without its end.
    fn take_line(&mut self) -> Result<Option<Range<usize>>, Garbled> {
        let end = self.bytes[self.searched..].iter().position(|&byte| byte == b'\n');
        let end = end.map(|end| self.searched + end);
        let length = end.unwrap_or(self.bytes.len()) - self.at;
        if length > LINE {
            return Err(Garbled::TooLong);
        }
        let Some(end) = end else {
            self.searched = self.bytes.len();
            return Ok(None);
        };
        let line = &self.bytes[self.at..end];
        let line = self.at..self.at + line.strip_suffix(b"\r").unwrap_or(line).len();
        (self.at, self.searched) = (end + 1, end + 1);
        Ok(Some(line))
    }

    /// A text of this length, which a line end follows.
    fn take_text(&mut self, length: usize) -> Result<Option<Reply>, Garbled> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.get(length..length + 2) else {
            self.text = Some(length);
            return Ok(None);
        };
        if end != b"\r\n" {
            return Err(Garbled::NotResp);
        }
        let text = rest[..length].to_vec();
        self.at += length + 2;
        (self.searched, self.text) = (self.at, None);
        Ok(Some(Reply::Text(text)))
    }
}
