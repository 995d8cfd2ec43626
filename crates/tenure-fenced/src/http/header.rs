//! The header with the fence: foreign input, so its form is checked before its value.

use ::http::{HeaderMap, HeaderName};
use tenure::Fence;

/// The header that carries the fence of the client's lock: `Tenure-Fence: 123`.
pub const FENCE_HEADER: HeaderName = HeaderName::from_static("tenure-fence");

/// The digits of the largest fence, 2^53 - 1.
const MAX_DIGITS: usize = 16;

/// Why a request has no usable fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoFence {
    Missing,
    Malformed,
}

/// The fence of a request. Two headers are malformed: which of them is meant is unknown.
pub(super) fn fence(headers: &HeaderMap) -> Result<Fence, NoFence> {
    let mut values = headers.get_all(FENCE_HEADER).iter();
    let value = values.next().ok_or(NoFence::Missing)?;
    if values.next().is_some() {
        return Err(NoFence::Malformed);
    }
    parse(value.as_bytes()).ok_or(NoFence::Malformed)
}

/// Digits only: the parser of the standard library would also take a sign.
fn parse(value: &[u8]) -> Option<Fence> {
    let is_number = (1..=MAX_DIGITS).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    let digits = std::str::from_utf8(value).ok().filter(|_| is_number)?;
    let fence = digits.parse().ok().map(Fence::from_value)?;
    (fence <= Fence::MAX && fence != Fence::NONE).then_some(fence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_a_number_below_2_to_the_53() {
        assert_eq!(parse(b"0"), None, "of a lock without fences");
        assert_eq!(parse(b"0000000000000007"), Some(Fence::from_value(7)));
        assert_eq!(parse(b"9007199254740991"), Some(Fence::MAX));
        let hostile: [&[u8]; 9] =
            [b"", b" 7", b"+7", b"-7", b"7,8", b"0x7", b"9007199254740992", b"\xff", &[b'0'; 17]];
        for value in hostile {
            assert_eq!(parse(value), None, "{value:?}");
        }
    }

    #[test]
    fn one_header_is_needed() {
        let mut headers = HeaderMap::new();
        assert_eq!(fence(&headers), Err(NoFence::Missing));
        headers.append(FENCE_HEADER, "7".parse().unwrap());
        assert_eq!(fence(&headers), Ok(Fence::from_value(7)));
        headers.append(FENCE_HEADER, "7".parse().unwrap());
        assert_eq!(fence(&headers), Err(NoFence::Malformed));
    }
}
