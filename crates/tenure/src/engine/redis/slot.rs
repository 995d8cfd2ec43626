//! The slots of a cluster: each key belongs to one of 16,384, and each slot to one node.

use std::sync::LazyLock;

use crc::{CRC_16_XMODEM, Crc};

/// How many slots a cluster has.
pub(super) const SLOTS: u16 = 16_384;

const HASH: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The slot of a key. If it contains a text in braces, that text decides alone.
pub(super) fn of_key(key: &str) -> u16 {
    of_tag(tag(key))
}

/// The slot of all keys with this text in their first braces.
pub(super) fn of_tag(tag: &str) -> u16 {
    HASH.checksum(tag.as_bytes()) % SLOTS
}

/// The part of a key that decides its slot: the text in its first braces, unless that is empty.
fn tag(key: &str) -> &str {
    let braced = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    braced.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// A short text whose slot is this one: `{tag}` in a channel puts it there.
pub(super) fn tag_of(slot: u16) -> String {
    // One search for all slots takes some milliseconds, and is made once.
    static TAGS: LazyLock<Vec<u32>> = LazyLock::new(numbers_by_slot);
    number_as_text(TAGS[usize::from(slot % SLOTS)])
}

/// For each slot, the smallest number whose text is in it.
fn numbers_by_slot() -> Vec<u32> {
    let mut numbers = vec![None; usize::from(SLOTS)];
    let mut missing = numbers.len();
    for number in 0.. {
        let found = &mut numbers[usize::from(of_tag(&number_as_text(number)))];
        if found.is_none() {
            *found = Some(number);
            missing -= 1;
            if missing == 0 {
                break;
            }
        }
    }
    numbers.into_iter().flatten().collect()
}

fn number_as_text(number: u32) -> String {
    format!("{number:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of `CLUSTER KEYSLOT`.
    #[test]
    fn slots_are_those_of_the_server() {
        assert_eq!(of_key("123456789"), 0x31c3);
        assert_eq!(of_key("foo"), 12_182);
        assert_eq!(of_key("tenure:{foo}"), 12_182);
        assert_eq!(of_key("tenure:{foo}:new{bar}"), 12_182);
        assert_eq!(of_key("{}foo"), of_key("{}foo"));
        assert_ne!(of_key("{}foo"), of_key("foo"), "empty braces do not count");
    }

    #[test]
    fn every_slot_has_a_tag() {
        for slot in 0..SLOTS {
            assert_eq!(of_key(&format!("tenure:wake:{{{}}}:7", tag_of(slot))), slot);
            assert!(tag_of(slot).len() <= 5);
        }
    }
}
