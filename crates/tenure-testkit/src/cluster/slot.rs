//! The slot of a key.

use std::ops::RangeInclusive;

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key: of the part in its first pair of braces, if there is such a part.
pub(crate) fn of(key: &[u8]) -> u16 {
    crc16(tag(key).unwrap_or(key)) % SLOTS
}

/// The slots of one of `count` nodes that share all slots evenly.
pub(crate) fn share(number: usize, count: usize) -> RangeInclusive<u16> {
    let first = |number: usize| usize::from(SLOTS) * number / count;
    let slot = |slot: usize| u16::try_from(slot).expect("a slot fits");
    slot(first(number))..=slot(first(number + 1) - 1)
}

fn tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let rest = &key[open + 1..];
    let close = rest.iter().position(|byte| *byte == b'}')?;
    (close > 0).then(|| &rest[..close])
}

/// CRC-16 in the variant called XMODEM: polynomial 0x1021, starting from zero.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 { shifted } else { shifted ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(of(b"123456789"), 0x31C3 % SLOTS);
    }

    #[test]
    fn only_the_first_tag_that_is_not_empty_counts() {
        assert_eq!(of(b"a{tag}b"), of(b"tag"));
        assert_eq!(of(b"{tag}{other}"), of(b"tag"));
        for whole in ["a{}b{tag}", "a{tag", "a}tag{"] {
            assert_eq!(tag(whole.as_bytes()), None, "{whole}");
        }
    }

    #[test]
    fn the_shares_cover_all_slots_once() {
        for count in 1..8 {
            let all: Vec<_> = (0..count).flat_map(|number| share(number, count)).collect();
            assert_eq!(all, (0..SLOTS).collect::<Vec<_>>());
        }
    }
}
