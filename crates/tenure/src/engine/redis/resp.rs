//! The protocol RESP, version 2: encoded commands, and replies, which [`Parser`] reads.

mod parser;

pub(super) use parser::Parser;

/// A reply of the server.
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

    /// A number, also if it is sent as text.
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
#[derive(Clone)]
pub(super) struct Command {
    words: usize,
    bytes: Vec<u8>,
    /// The server is to write its messages to other clients before the reply to this one: see
    /// [`Wire::send`](super::wire::Wire::send).
    pub(super) is_answered_last: bool,
    /// Sent behind an ASKING: the slot is in transit to this node of a cluster.
    pub(super) is_asking: bool,
}

impl Command {
    pub(super) fn new(name: &str) -> Self {
        let bytes = Vec::with_capacity(256);
        Self { words: 0, bytes, is_answered_last: false, is_asking: false }.arg(name)
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

    /// The same command with two other words at the beginning.
    pub(super) fn with_head(&self, old: [&str; 2], new: [&str; 2]) -> Self {
        let head = old.iter().fold(0, |length, word| length + written(word.len()));
        let bytes = Vec::with_capacity(self.bytes.len() + new[1].len());
        let Self { is_answered_last, is_asking, .. } = *self;
        let mut command = Self { words: 0, bytes, is_answered_last, is_asking };
        new.iter().for_each(|word| command.push(word));
        command.bytes.extend_from_slice(&self.bytes[head..]);
        command.words = self.words;
        command
    }

    /// Appends the encoded command.
    pub(super) fn write(&self, into: &mut Vec<u8>) {
        into.push(b'*');
        push_number(into, self.words);
        into.extend_from_slice(&self.bytes);
    }
}

/// How many bytes a word of this length takes.
fn written(length: usize) -> usize {
    let digits = length.checked_ilog10().unwrap_or(0) as usize + 1;
    b"$\r\n".len() + digits + length + b"\r\n".len()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_an_array_of_texts() {
        let mut bytes = Vec::new();
        Command::new("SET").arg("key").arg(b"a\r\nb").write(&mut bytes);
        assert_eq!(bytes, b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$4\r\na\r\nb\r\n");
    }

    #[test]
    fn a_command_can_begin_with_other_words() {
        let bytes = |command: Command| {
            let mut bytes = Vec::new();
            command.write(&mut bytes);
            bytes
        };
        let command = Command::new("EVALSHA").arg("0123456789").arg("").arg("key");
        let other = command.with_head(["EVALSHA", "0123456789"], ["EVAL", "return"]);
        assert_eq!(bytes(other), bytes(Command::new("EVAL").arg("return").arg("").arg("key")));
    }
}
