//! The names of keys, and the encoding of texts in keys and messages.
//!
//! A lock's key is `tenure:{name}`; the key beside it, through which a string becomes a hash, has a suffix, and
//! the braces put both in one slot. So that no name can break out of them, or out of a message, braces,
//! controls, spaces and the percent sign are percent-encoded.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use super::slot;
use crate::core::name::LockName;

/// The prefix of every lock's key.
const START: &str = "tenure:{";

/// The prefix of the channel on which a client receives its wake-ups; its id follows.
pub(super) const CHANNEL: &str = "tenure:wake:";

/// The key with the id of a store.
pub(super) const STORE: &str = "tenure:store";

/// The key with the marker of a quorum, on each of its nodes.
pub(super) const QUORUM: &str = "tenure:quorum";

/// The key of a lock.
pub(super) fn lock_key(name: &LockName) -> String {
    format!("{START}{}}}", encode(name.as_str()))
}

/// The slot of a lock, in a cluster.
pub(super) fn slot(name: &LockName) -> u16 {
    // All that is between the braces of its key, and so decides alone.
    slot::of_tag(&encode(name.as_str()))
}

/// A client's id in a cluster, for the locks of one slot: a channel that ends with it is in that slot.
pub(super) fn client_in_slot(client: &str, slot: u16) -> String {
    format!("{{{}}}:{client}", slot::tag_of(slot))
}

/// The id of a client by its id for a slot; any other id is unchanged.
pub(super) fn client_id(in_slot: &str) -> &str {
    in_slot.rsplit_once(':').map_or(in_slot, |(_, client)| client)
}

/// The name of the lock with this key; none for other keys.
pub(super) fn name(key: &str) -> Option<LockName> {
    let encoded = key.strip_prefix(START)?.strip_suffix('}')?;
    LockName::new(decode(encoded)?).ok()
}

/// The key with the record of a client: host, process and program.
pub(super) fn client(id: &str) -> String {
    format!("tenure:client:{id}")
}

/// A pattern for the keys of locks whose names start with `prefix`.
pub(super) fn pattern(prefix: &str) -> String {
    format!("{START}{}*}}", escape_pattern(&encode(prefix)))
}

/// A text as a part of a pattern.
pub(super) fn escape_pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// The characters that a key or a message must not contain unescaped.
const UNSAFE: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'{').add(b'}');

/// A text without spaces, controls or braces.
pub(super) fn encode(text: &str) -> Cow<'_, str> {
    // The fast path: most names are plain, and every call encodes some.
    let is_safe = |byte: u8| byte > b' ' && !matches!(byte, b'%' | b'{' | b'}' | 0x7f);
    if text.bytes().all(is_safe) {
        return Cow::Borrowed(text);
    }
    // Text that is not ASCII stays readable.
    let mut encoded = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() {
            encoded.extend(utf8_percent_encode(c.encode_utf8(&mut [0; 4]), UNSAFE));
        } else {
            encoded.push(c);
        }
    }
    Cow::Owned(encoded)
}

/// The text that was encoded.
pub(super) fn decode(encoded: &str) -> Option<String> {
    percent_decode_str(encoded).decode_utf8().ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_name_survives_its_key(name in "[^\0]{1,60}") {
            let name = LockName::new(name).unwrap();
            let key = lock_key(&name);
            prop_assert_eq!(super::name(&key), Some(name));
            prop_assert_eq!(key.matches(['{', '}', ' ', '\n']).count(), 2, "one slot: {}", key);
        }

        #[test]
        fn no_key_makes_the_parser_panic(key: String) {
            let _ = name(&key);
            let _ = name(&format!("{START}{key}}}"));
        }
    }

    #[test]
    fn a_prefix_is_no_pattern() {
        assert_eq!(pattern("a*[x"), r"tenure:{a\*\[x*}");
    }
}
