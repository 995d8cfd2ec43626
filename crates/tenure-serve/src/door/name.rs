//! Names of locks, and what else is in an address.

use percent_encoding::percent_decode_str;
use tenure::LockName;

use crate::problem::Problem;

/// The name of a lock, as it is in a path.
pub(crate) fn lock_name(encoded: &str) -> Result<LockName, Problem> {
    LockName::new(decoded(encoded)?).map_err(|invalid| Problem::usage(invalid.to_string()))
}

/// A part of an address, without its percent encoding.
pub(crate) fn decoded(encoded: &str) -> Result<String, Problem> {
    let bytes = encoded.as_bytes();
    let is_whole = |at: usize| {
        let digits = bytes.get(at + 1..at + 3);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let is_wrong = encoded.bytes().enumerate().any(|(at, byte)| byte == b'%' && !is_whole(at));
    let text = percent_decode_str(encoded).decode_utf8().ok().filter(|_| !is_wrong);
    let wrong = || Problem::usage("the address is not percent-encoded UTF-8");
    text.map(|text| text.into_owned()).ok_or_else(wrong)
}

/// The parameters behind the question mark.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Result<Self, Problem> {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decoded(name)?, decoded(&value.replace('+', "%20"))?))
        });
        pairs.collect::<Result<_, Problem>>().map(Self)
    }

    /// Takes a parameter.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(it, _)| it == name)?;
        Some(self.0.swap_remove(at).1)
    }

    /// Takes a number.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<u64>, Problem> {
        let number = self.take(name).map(|value| value.parse()).transpose();
        number.map_err(|_| Problem::usage(format!("`{name}` must be a whole number")))
    }

    /// Nothing may be left.
    pub(crate) fn end(self) -> Result<(), Problem> {
        match self.0.first() {
            Some((name, _)) => {
                let name = name.escape_debug();
                Err(Problem::usage(format!("there is no parameter `{name}` here")))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded_once_and_strictly() {
        for (encoded, name) in [
            ("orders/42", "orders/42"),
            ("orders%2F42", "orders/42"),
            ("a%252Fb", "a%2Fb"),
            ("%E2%82%AC", "€"),
            ("a+b", "a+b"),
            ("%2E%2E", ".."),
        ] {
            assert_eq!(lock_name(encoded).unwrap().as_str(), name);
        }
        for bad in ["", "%", "%4", "%zz", "%FF", "%C3%28", "%00"] {
            assert!(lock_name(bad).is_err() || bad == "%00", "{bad}");
        }
        assert!(lock_name(&"x".repeat(513)).is_err());
    }

    #[test]
    fn a_query_is_read_and_typing_errors_are_noticed() {
        let mut query = Query::parse(Some("prefix=a%2Fb+c&limit=3")).unwrap();
        assert_eq!(query.take("prefix").unwrap(), "a/b c");
        assert_eq!(query.number("limit").unwrap(), Some(3));
        assert!(query.end().is_ok());
        assert!(Query::parse(Some("limt=3")).unwrap().end().is_err());
        assert!(Query::parse(Some("limit=x")).unwrap().number("limit").is_err());
    }
}
