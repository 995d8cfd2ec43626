//! Entry points for the fuzz targets in `fuzz/`: each takes any bytes and panics if an invariant is broken.
//!
//! Compiled with `--cfg fuzzing` only, and no part of the public API. The parsers are private to their engines, so
//! their files are compiled here a second time, next to stand-ins for the few types that they need.

#![allow(dead_code, unreachable_pub, reason = "the parsers' files, of which fuzzing uses a part")]

use crate::{Handle, LockName, Owner};

#[path = "engine/redis/address.rs"]
mod address;
#[path = "engine/local/bytes.rs"]
mod bytes;
#[path = "engine/local/message.rs"]
mod message;
#[path = "engine/redis/resp/parser.rs"]
mod parser;
#[path = "engine/local/record.rs"]
mod record;

/// What a reply may cost the RESP parser, in bytes.
const REPLY_LIMIT: usize = 64 * 1024;

/// Replies do not depend on how the bytes are split into reads. The first byte says where to split.
pub fn resp(data: &[u8]) {
    let Some((&at, data)) = data.split_first() else { return };
    let (first, second) = data.split_at(usize::from(at).min(data.len()));
    assert_eq!(replies(&[data]), replies(&[first, second]));
}

/// All replies in these pieces, and the error that ended them.
fn replies(pieces: &[&[u8]]) -> (Vec<Reply>, Option<parser::Garbled>) {
    let (mut parser, mut replies) = (parser::Parser::new(REPLY_LIMIT), Vec::new());
    for piece in pieces {
        parser.buffer().extend_from_slice(piece);
        loop {
            match parser.next() {
                Ok(Some(reply)) => replies.push(reply),
                Ok(None) => break,
                Err(error) => return (replies, Some(error)),
            }
        }
    }
    (replies, None)
}

/// A record that can be read is read the same after it is written again; so is a message.
pub fn record(data: &[u8]) {
    if let Ok(lock) = record::decode_lock(data) {
        let written = record::encode_lock(&lock);
        let again = record::decode_lock(&written).expect("a lock that was written can be read");
        assert_eq!(record::encode_lock(&again), written);
    }
    if let Ok(meta) = record::Meta::decode(data) {
        assert_eq!(record::Meta::decode(&meta.encode()), Ok(meta));
    }
    if let Ok(forced) = record::decode_forced(data) {
        let written = record::encode_forced(&forced);
        let again = record::decode_forced(&written).expect("a record that was written can be read");
        assert_eq!(record::encode_forced(&again), written);
    }
    let _ = record::forced_at(data);
    if let Ok(wakeup) = message::decode(data) {
        assert_eq!(message::decode(&message::encode(&wakeup)), Ok(wakeup));
    }
}

/// A handle or an owner that is understood is understood the same after it is printed.
pub fn handle(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(handle) = text.parse::<Handle>() {
        assert_eq!(handle.to_string().parse::<Handle>().as_ref(), Ok(&handle));
    }
    if let Ok(owner) = text.parse::<Owner>() {
        assert_eq!(owner.to_string().parse::<Owner>().as_ref(), Ok(&owner));
    }
}

/// A name is taken as it is or refused, and prints without control characters.
pub fn name(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(name) = LockName::new(text) {
        assert_eq!(name.as_str(), text);
        assert!(!name.to_string().contains(char::is_control));
    }
}

/// Every URL is understood or refused; its password is in no message. A seed writes it as `PASSWORD`.
pub fn url(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let secret = "a-password-that-occurs-nowhere-else";
    let text = text.replace("PASSWORD", secret);
    let message = match address::Address::parse(&text) {
        Ok(address) => {
            address.greeting();
            format!("{address:?} {}", address.place)
        }
        Err(refusal) => refusal.to_string(),
    };
    // The same characters may also be meant as a host, a path or a file, which may be shown.
    let is_only_password = text.matches(secret).count() == 1
        && ::url::Url::parse(&text).is_ok_and(|url| url.password() == Some(secret));
    assert!(!is_only_password || !message.contains(secret), "{message}");
}

/// As in `engine/redis/resp.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reply {
    Status(String),
    Error(String),
    Integer(i64),
    Text(Vec<u8>),
    Nil,
    Array(Vec<Reply>),
}

/// Commands are built, not parsed, so a stand-in that takes any words is enough.
mod resp {
    pub(super) struct Command;

    impl Command {
        pub(super) fn new(_: &str) -> Self {
            Self
        }

        pub(super) fn arg(self, _: impl AsRef<[u8]>) -> Self {
            self
        }

        pub(super) fn push(&mut self, _: impl AsRef<[u8]>) {}
    }
}

/// The files of TLS are named in a URL, and read elsewhere.
mod tls {
    use std::path::PathBuf;

    use crate::error::Invalid;

    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(super) struct Trust;

    impl Trust {
        pub(super) fn new(
            _: Option<PathBuf>,
            cert: Option<PathBuf>,
            key: Option<PathBuf>,
        ) -> Result<Self, Invalid> {
            if cert.is_some() == key.is_some() {
                Ok(Self)
            } else {
                Err(Invalid::new("half an identity"))
            }
        }
    }
}
