//! Reading a reply.

use std::io::{self, BufRead};

use super::Reply;

pub(super) fn reply(reader: &mut impl BufRead) -> io::Result<Reply> {
    let line = line(reader)?;
    let mut kind = line.chars();
    match (kind.next(), kind.as_str()) {
        (Some('+'), text) => Ok(Reply::Simple(text.to_owned())),
        (Some('-'), text) => Ok(Reply::Error(text.to_owned())),
        (Some(':'), number) => Ok(Reply::Integer(number.parse().map_err(malformed)?)),
        (Some('$'), length) => Ok(Reply::Bulk(bulk(reader, length)?)),
        (Some('*' | '~'), length) => Ok(Reply::Array(array(reader, length)?)),
        (Some(kind), text) => resp3(reader, kind, text),
        (None, _) => Err(malformed(line)),
    }
}

/// The kinds that came with RESP 3.
fn resp3(reader: &mut impl BufRead, kind: char, text: &str) -> io::Result<Reply> {
    match kind {
        '_' => Ok(Reply::Bulk(None)),
        '#' => Ok(Reply::Boolean(text == "t")),
        ',' | '(' => Ok(Reply::Number(text.to_owned())),
        '!' => string(reader, text).map(|error| Reply::Error(lossy(&error))),
        // Its first four bytes tell how it is meant to be shown.
        '=' => string(reader, text).map(|text| Reply::Bulk(text.get(4..).map(<[u8]>::to_vec))),
        '>' => Ok(Reply::Push(array(reader, text)?.unwrap_or_default())),
        '%' => Ok(Reply::Map(map(reader, text)?)),
        // Attributes, which a client may ignore; the reply itself follows.
        '|' => map(reader, text).and_then(|_| reply(reader)),
        _ => Err(malformed(format!("{kind}{text}"))),
    }
}

/// One line, without its end.
fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(text) => Ok(text.to_owned()),
        None => {
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"))
        }
    }
}

fn bulk(reader: &mut impl BufRead, length: &str) -> io::Result<Option<Vec<u8>>> {
    let Some(length) = length_of(length)? else {
        return Ok(None);
    };
    let mut bytes = vec![0; length + 2];
    reader.read_exact(&mut bytes)?;
    if bytes.split_off(length) != b"\r\n" {
        return Err(malformed("a string that is longer than announced"));
    }
    Ok(Some(bytes))
}

fn string(reader: &mut impl BufRead, length: &str) -> io::Result<Vec<u8>> {
    bulk(reader, length).map(Option::unwrap_or_default)
}

fn array(reader: &mut impl BufRead, length: &str) -> io::Result<Option<Vec<Reply>>> {
    let Some(length) = length_of(length)? else {
        return Ok(None);
    };
    (0..length).map(|_| reply(reader)).collect::<io::Result<_>>().map(Some)
}

fn map(reader: &mut impl BufRead, length: &str) -> io::Result<Vec<(Reply, Reply)>> {
    let length = length_of(length)?.unwrap_or(0);
    (0..length).map(|_| Ok((reply(reader)?, reply(reader)?))).collect()
}

/// A length; none for the −1 that means nil.
fn length_of(text: &str) -> io::Result<Option<usize>> {
    if text == "-1" { Ok(None) } else { text.parse().map(Some).map_err(malformed) }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn malformed(what: impl ToString) -> io::Error {
    let what = what.to_string();
    io::Error::new(io::ErrorKind::InvalidData, format!("the server's answer is no RESP: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(mut bytes: &[u8]) -> io::Result<Reply> {
        reply(&mut bytes)
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        assert_eq!(decoded(b"+OK\r\n").unwrap(), Reply::Simple("OK".into()));
        assert_eq!(decoded(b"-ERR no\r\n").unwrap(), Reply::Error("ERR no".into()));
        assert_eq!(decoded(b":-7\r\n").unwrap(), Reply::Integer(-7));
        assert_eq!(decoded(b"$2\r\n\r\n\r\n").unwrap(), Reply::Bulk(Some(b"\r\n".to_vec())));
        assert!(decoded(b"$-1\r\n").unwrap().is_nil());
        assert!(decoded(b"*-1\r\n").unwrap().is_nil());
        let nested = Reply::Array(Some(vec![Reply::Integer(1), Reply::Array(Some(vec![]))]));
        assert_eq!(decoded(b"*2\r\n:1\r\n*0\r\n").unwrap(), nested);
    }

    #[test]
    fn every_kind_of_a_resp_3_reply_is_read() {
        let bulk = |text: &str| Reply::Bulk(Some(text.into()));
        assert!(decoded(b"_\r\n").unwrap().is_nil());
        assert_eq!(decoded(b"#t\r\n").unwrap(), Reply::Boolean(true));
        assert_eq!(decoded(b",1.5\r\n").unwrap(), Reply::Number("1.5".into()));
        assert_eq!(decoded(b"(99\r\n").unwrap(), Reply::Number("99".into()));
        assert_eq!(decoded(b"!6\r\nERR no\r\n").unwrap(), Reply::Error("ERR no".into()));
        assert_eq!(decoded(b"=6\r\ntxt:hi\r\n").unwrap(), bulk("hi"));
        assert_eq!(decoded(b"~1\r\n:1\r\n").unwrap(), Reply::Array(Some(vec![Reply::Integer(1)])));
        assert_eq!(decoded(b">1\r\n$1\r\na\r\n").unwrap(), Reply::Push(vec![bulk("a")]));
        let map = decoded(b"%1\r\n$1\r\na\r\n:1\r\n").unwrap();
        assert_eq!(map, Reply::Map(vec![(bulk("a"), Reply::Integer(1))]));
        assert_eq!(decoded(b"|1\r\n+ttl\r\n:9\r\n:1\r\n").unwrap(), Reply::Integer(1));
    }

    #[test]
    fn a_cut_or_false_answer_is_an_error() {
        assert_eq!(decoded(b"").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(decoded(b"+O").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(decoded(b"$4\r\nab").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(decoded(b"$1\r\nabc").unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(decoded(b"HTTP/1.1\r\n").unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
