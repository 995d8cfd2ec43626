//! Replies of a simulated server, and the commands that it reads.

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Status(&'static str),
    Error(String),
    Integer(i64),
    Text(Vec<u8>),
    Nil,
    Array(Vec<Reply>),
}

impl Reply {
    /// A text, or nothing.
    pub(super) fn of(text: Option<&Vec<u8>>) -> Self {
        text.map_or(Self::Nil, |text| Self::Text(text.clone()))
    }

    /// Texts.
    pub(super) fn texts(texts: &[&[u8]]) -> Self {
        Self::Array(texts.iter().map(|text| Self::Text(text.to_vec())).collect())
    }

    /// As RESP 2 has it.
    pub(super) fn write(&self, into: &mut Vec<u8>) {
        let line =
            |into: &mut Vec<u8>, text: String| into.extend([text.as_bytes(), b"\r\n"].concat());
        match self {
            Self::Status(text) => line(into, format!("+{text}")),
            Self::Error(text) => line(into, format!("-{}", text.replace(['\r', '\n'], " "))),
            Self::Integer(number) => line(into, format!(":{number}")),
            Self::Nil => line(into, "$-1".to_owned()),
            Self::Text(text) => {
                line(into, format!("${}", text.len()));
                into.extend_from_slice(text);
                into.extend_from_slice(b"\r\n");
            }
            Self::Array(replies) => {
                line(into, format!("*{}", replies.len()));
                replies.iter().for_each(|reply| reply.write(into));
            }
        }
    }
}

/// Takes the first command off the bytes that were received, if it is complete.
pub(super) fn take_command(bytes: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let mut rest = &bytes[..];
    let count = take_number(&mut rest, b'*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let length = take_number(&mut rest, b'$')?;
        words.push(rest.get(..length)?.to_vec());
        rest = rest.get(length + 2..)?;
    }
    let used = bytes.len() - rest.len();
    bytes.drain(..used);
    Some(words)
}

fn take_number(rest: &mut &[u8], mark: u8) -> Option<usize> {
    let end = rest.iter().position(|byte| *byte == b'\r')?;
    let digits = rest[..end].strip_prefix(&[mark]).expect("a client sends arrays of texts");
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    *rest = rest.get(end + 2..)?;
    Some(number)
}
