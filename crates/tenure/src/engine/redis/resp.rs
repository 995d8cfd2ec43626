//! The protocol, version 2: commands out, replies in.

/// What the server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Status(String),
    Error(String),
    Integer(i64),
    Text(Vec<u8>),
    Nil,
    Array(Vec<Reply>),
}

impl Reply {
    pub(super) fn array(&self) -> Option<&[Reply]> {
        match self {
            Self::Array(replies) => Some(replies),
            _ => None,
        }
    }

    /// A number, also where it came as text.
    pub(super) fn number(&self) -> Option<u64> {
        match self {
            Self::Integer(number) => u64::try_from(*number).ok(),
            Self::Text(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(bytes) => std::str::from_utf8(bytes).ok(),
            Self::Status(text) => Some(text),
            _ => None,
        }
    }
}

/// A command, ready to be sent.
pub(super) struct Command {
    words: usize,
    bytes: Vec<u8>,
}

impl Command {
    pub(super) fn new(name: &str) -> Self {
        Self { words: 0, bytes: Vec::with_capacity(256) }.arg(name)
    }

    pub(super) fn arg(mut self, word: impl AsRef<[u8]>) -> Self {
        self.push(word);
        self
    }

    pub(super) fn push(&mut self, word: impl AsRef<[u8]>) {
        let word = word.as_ref();
        self.words += 1;
        self.bytes.push(b'$');
        push_number(&mut self.bytes, word.len());
        self.bytes.extend_from_slice(word);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Puts the command at the end of what is to be sent.
    pub(super) fn write(&self, into: &mut Vec<u8>) {
        into.push(b'*');
        push_number(into, self.words);
        into.extend_from_slice(&self.bytes);
    }
}

fn push_number(into: &mut Vec<u8>, number: usize) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut rest = number;
    loop {
        start -= 1;
        // A digit is below ten.
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    into.extend_from_slice(&digits[start..]);
    into.extend_from_slice(b"\r\n");
}

/// What the server sent is not its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Garbled;

/// Deeper answers are no server's.
const DEPTH: usize = 16;

/// The first reply in `bytes`, and how many bytes it takes; none if it is not all there yet.
pub(super) fn read(bytes: &[u8]) -> Result<Option<(Reply, usize)>, Garbled> {
    let mut reader = Reader { bytes, at: 0 };
    Ok(reader.reply(DEPTH)?.map(|reply| (reply, reader.at)))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn reply(&mut self, depth: usize) -> Result<Option<Reply>, Garbled> {
        let Some(line) = self.line() else { return Ok(None) };
        let (kind, rest) = line.split_first().ok_or(Garbled)?;
        let text = || std::str::from_utf8(rest).map_err(|_| Garbled);
        Ok(Some(match kind {
            b'+' => Reply::Status(text()?.to_owned()),
            b'-' => Reply::Error(text()?.to_owned()),
            b':' => Reply::Integer(text()?.parse().map_err(|_| Garbled)?),
            b'$' => match text()?.parse::<i64>().map_err(|_| Garbled)? {
                -1 => Reply::Nil,
                length => match self.bulk(usize::try_from(length).map_err(|_| Garbled)?)? {
                    Some(bytes) => Reply::Text(bytes),
                    None => return Ok(None),
                },
            },
            b'*' => match text()?.parse::<i64>().map_err(|_| Garbled)? {
                -1 => Reply::Nil,
                count if depth > 0 => return self.array(count, depth - 1),
                _ => return Err(Garbled),
            },
            _ => return Err(Garbled),
        }))
    }

    fn array(&mut self, count: i64, depth: usize) -> Result<Option<Reply>, Garbled> {
        let mut replies = Vec::new();
        for _ in 0..count {
            match self.reply(depth)? {
                Some(reply) => replies.push(reply),
                None => return Ok(None),
            }
        }
        Ok(Some(Reply::Array(replies)))
    }

    /// The next line, without its end.
    fn line(&mut self) -> Option<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|&byte| byte == b'\n')?;
        self.at += end + 1;
        Some(rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]))
    }

    fn bulk(&mut self, length: usize) -> Result<Option<Vec<u8>>, Garbled> {
        let rest = &self.bytes[self.at..];
        if rest.len() < length + 2 {
            return Ok(None);
        }
        if &rest[length..length + 2] != b"\r\n" {
            return Err(Garbled);
        }
        self.at += length + 2;
        Ok(Some(rest[..length].to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write(reply: &Reply) -> Vec<u8> {
        match reply {
            Reply::Status(text) => format!("+{text}\r\n").into(),
            Reply::Error(text) => format!("-{text}\r\n").into(),
            Reply::Integer(number) => format!(":{number}\r\n").into(),
            Reply::Nil => b"$-1\r\n".to_vec(),
            Reply::Text(bytes) => {
                [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
            }
            Reply::Array(replies) => {
                let parts = replies.iter().flat_map(write);
                format!("*{}\r\n", replies.len()).bytes().chain(parts).collect()
            }
        }
    }

    fn reply() -> impl Strategy<Value = Reply> {
        let leaf = prop_oneof![
            "[^\r\n]{0,20}".prop_map(Reply::Status),
            "[^\r\n]{0,20}".prop_map(Reply::Error),
            any::<i64>().prop_map(Reply::Integer),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Reply::Text),
            Just(Reply::Nil),
        ];
        leaf.prop_recursive(3, 30, 6, |inner| {
            prop::collection::vec(inner, 0..6).prop_map(Reply::Array)
        })
    }

    proptest! {
        #[test]
        fn a_reply_is_read_once_all_of_it_is_there(reply in reply(), more: Vec<u8>) {
            let bytes = write(&reply);
            for end in 0..bytes.len() {
                prop_assert_eq!(read(&bytes[..end]), Ok(None), "{} of {}", end, bytes.len());
            }
            let all = [bytes.clone(), more].concat();
            prop_assert_eq!(read(&all), Ok(Some((reply, bytes.len()))));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
            let _ = read(&bytes);
        }
    }

    #[test]
    fn a_command_is_an_array_of_texts() {
        let mut bytes = Vec::new();
        Command::new("SET").arg("key").arg(b"a\r\nb").write(&mut bytes);
        assert_eq!(bytes, b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$4\r\na\r\nb\r\n");
    }
}
