//! Replies in pieces, and bytes that are no reply.

use proptest::prelude::*;

use super::*;

const LIMIT: usize = 64 * 1024;

fn write(reply: &Reply) -> Vec<u8> {
    match reply {
        Reply::Status(text) => format!("+{text}\r\n").into(),
        Reply::Error(text) => format!("-{text}\r\n").into(),
        Reply::Integer(number) => format!(":{number}\r\n").into(),
        Reply::Nil => b"$-1\r\n".to_vec(),
        Reply::Text(bytes) => [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat(),
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
    leaf.prop_recursive(3, 30, 6, |inner| prop::collection::vec(inner, 0..6).prop_map(Reply::Array))
}

/// All replies in these bytes, which arrive in pieces of these lengths, cyclically.
fn read(bytes: &[u8], pieces: &[usize]) -> (Vec<Reply>, Result<(), Garbled>) {
    let mut parser = Parser::new(LIMIT);
    let mut replies = Vec::new();
    let mut lengths = pieces.iter().copied().cycle();
    let mut rest = bytes;
    loop {
        match parser.next() {
            Ok(Some(reply)) => replies.push(reply),
            Ok(None) if rest.is_empty() => return (replies, Ok(())),
            Ok(None) => {
                let length = lengths.next().unwrap_or(1).clamp(1, rest.len());
                parser.buffer().extend_from_slice(&rest[..length]);
                rest = &rest[length..];
            }
            Err(garbled) => return (replies, Err(garbled)),
        }
        let (taken, piece) = (parser.bytes.capacity(), pieces.iter().max().unwrap_or(&1));
        assert!(taken <= 2 * (LIMIT + piece), "{taken} bytes");
    }
}

proptest! {
    #[test]
    fn replies_are_the_same_however_their_bytes_are_cut(
        replies in prop::collection::vec(reply(), 0..5),
        pieces in prop::collection::vec(1usize..30, 1..5),
    ) {
        let bytes: Vec<u8> = replies.iter().flat_map(write).collect();
        prop_assert_eq!(read(&bytes, &pieces), (replies.clone(), Ok(())));
        prop_assert_eq!(read(&bytes, &[bytes.len()]), (replies, Ok(())));
    }

    #[test]
    fn a_reply_is_read_as_soon_as_all_of_it_is_there(reply in reply()) {
        let bytes = write(&reply);
        prop_assert_eq!(read(&bytes[..bytes.len() - 1], &[7]), (Vec::new(), Ok(())));
    }

    #[test]
    fn any_bytes_are_read_in_the_same_way_however_they_are_cut(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            // Closer to the protocol.
            "[+:$*\r\n0-9-]{0,200}".prop_map(String::into_bytes),
        ],
        pieces in prop::collection::vec(1usize..30, 1..5),
    ) {
        prop_assert_eq!(read(&bytes, &pieces), read(&bytes, &[bytes.len().max(1)]));
    }
}

#[test]
fn a_reply_over_the_limit_fails_at_its_length_line() {
    let is_refused = |bytes: &[u8]| read(bytes, &[5]) == (Vec::new(), Err(Garbled::TooLong));
    assert!(is_refused(b"$9999999999\r\n"));
    assert!(is_refused(b"*1000000000\r\n"));
    assert!(is_refused(b"*9223372036854775807\r\n"));
    assert!(is_refused(b"*2\r\n:1\r\n$65500\r\n"), "earlier items count");
    assert_eq!(read(b"$-2\r\n", &[5]).1, Err(Garbled::NotResp));
    assert_eq!(read(b"*-2\r\n", &[5]).1, Err(Garbled::NotResp));
    assert_eq!(read(&b"*1\r\n".repeat(17), &[5]).1, Err(Garbled::NotResp), "too deep");
}

/// An array whose items are longer than its length line implied, and a line without end.
#[test]
fn a_reply_without_end_fails_when_it_exceeds_the_limit() {
    let array = [b"*1500\r\n".to_vec(), b"$9\r\n123456789\r\n".repeat(1_500)].concat();
    let (replies, outcome) = read(&array, &[1_000]);
    assert_eq!((replies.len(), outcome), (0, Err(Garbled::TooLong)));
    let line = vec![b'+'; LINE + 2];
    assert_eq!(read(&line, &[1_000]).1, Err(Garbled::TooLong));
}

#[test]
fn many_small_replies_cost_nothing_in_the_end() {
    let bytes = b"*2\r\n$3\r\nabc\r\n:1\r\n".repeat(100_000);
    let (replies, outcome) = read(&bytes, &[65_536]);
    assert_eq!((replies.len(), outcome), (100_000, Ok(())));
}

/// A text of some megabytes in small pieces: starting again with every piece would take minutes.
#[test]
fn a_long_text_in_small_pieces_takes_linear_time() {
    let mut parser = Parser::new(64 * 1024 * 1024);
    parser.buffer().extend_from_slice(b"*2\r\n+a\r\n$32000000\r\n");
    for _ in 0..2_000_000 {
        assert_eq!(parser.next(), Ok(None));
        parser.buffer().extend_from_slice(&[b'x'; 16]);
    }
    parser.buffer().extend_from_slice(b"\r\n");
    assert!(matches!(parser.next(), Ok(Some(Reply::Array(replies))) if replies.len() == 2));
    parser.buffer();
    assert!(parser.bytes.capacity() <= KEPT, "the memory is given back");
}
