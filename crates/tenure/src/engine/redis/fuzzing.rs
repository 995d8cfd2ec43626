//! Entry points for the fuzz targets of the Redis engine: replies and URLs.

use super::address::Store;
use super::resp::{Parser, Reply};

/// What a reply may cost the RESP parser, in bytes.
const REPLY_LIMIT: usize = 64 * 1024;

/// Replies do not depend on how the bytes are split into reads. The first byte says where to split.
pub(crate) fn resp(data: &[u8]) {
    let Some((&at, data)) = data.split_first() else { return };
    let (first, second) = data.split_at(usize::from(at).min(data.len()));
    assert_eq!(replies(&[data]), replies(&[first, second]));
}

/// All replies in these pieces, and the error that ended them.
fn replies(pieces: &[&[u8]]) -> (Vec<Reply>, Option<String>) {
    let (mut parser, mut replies) = (Parser::new(REPLY_LIMIT), Vec::new());
    for piece in pieces {
        parser.buffer().extend_from_slice(piece);
        loop {
            match parser.next() {
                Ok(Some(reply)) => replies.push(reply),
                Ok(None) => break,
                Err(error) => return (replies, Some(error.to_string())),
            }
        }
    }
    (replies, None)
}

/// Every URL is understood or refused; its password is in no message. A seed writes it as `PASSWORD`.
pub(crate) fn url(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let secret = "a-password-that-occurs-nowhere-else";
    let text = text.replace("PASSWORD", secret);
    let message = match Store::parse(&text) {
        Ok(Store::One(address)) => {
            address.greeting();
            format!("{address:?} {}", address.master)
        }
        Ok(Store::Cluster(members)) => members.to_string(),
        Err(refusal) => refusal.to_string(),
    };
    // The same characters may also be meant as a host, a path or a file, which may be shown.
    let is_only_password = text.matches(secret).count() == 1
        && url::Url::parse(&text).is_ok_and(|url| url.password() == Some(secret));
    assert!(!is_only_password || !message.contains(secret), "{message}");
}
