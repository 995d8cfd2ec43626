//! Who may do what: tokens, compared in constant time.

use axum::http::{HeaderMap, header};
use subtle::{Choice, ConstantTimeEq};

/// A shorter token could be guessed.
const SHORTEST: usize = 16;

/// A secret that a client sends.
#[derive(Clone)]
pub struct Token(Vec<u8>);

/// Why a text is no token.
#[derive(Debug, thiserror::Error)]
#[error(
    "a token must have 16 printable ASCII characters at least and no spaces, such as `openssl rand -hex 16` prints"
)]
pub struct WrongToken;

impl Token {
    /// Reads a token; white space around it is ignored.
    ///
    /// # Errors
    /// If it is too short, or cannot be sent in a header.
    pub fn new(text: &str) -> Result<Self, WrongToken> {
        let text = text.trim();
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        if text.len() < SHORTEST || !is_plain {
            return Err(WrongToken);
        }
        Ok(Self(text.as_bytes().to_vec()))
    }

    /// Whether both are the same secret: then it would have two rights.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.is(&other.0).into()
    }

    fn is(&self, sent: &[u8]) -> Choice {
        // Only the length can be learnt from the time.
        self.0.ct_eq(sent)
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The tokens. Without any, each client that reaches the server may do everything.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// For everything.
    pub full: Option<Token>,
    /// For looking.
    pub read: Option<Token>,
    /// Nothing may be changed, with any token.
    pub is_read_only: bool,
}

/// What a request may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Right {
    None,
    Look,
    Act,
}

impl Access {
    /// Whether clients must send a token.
    #[must_use]
    pub fn has_tokens(&self) -> bool {
        self.full.is_some() || self.read.is_some()
    }

    /// The right of a request with these headers.
    pub(crate) fn right(&self, headers: &HeaderMap) -> Right {
        let right = match self.has_tokens() {
            false => Right::Act,
            true => sent(headers).map_or(Right::None, |sent| self.of_token(&sent)),
        };
        if self.is_read_only { right.min(Right::Look) } else { right }
    }

    fn of_token(&self, sent: &[u8]) -> Right {
        let is = |token: &Option<Token>| token.as_ref().map_or(0.into(), |token| token.is(sent));
        // Both are compared, whichever it is.
        let (full, read) = (is(&self.full), is(&self.read));
        match (bool::from(full), bool::from(read)) {
            (true, _) => Right::Act,
            (false, true) => Right::Look,
            (false, false) => Right::None,
        }
    }
}

/// The token in a request: a bearer token, or the password of basic authentication, which is all that Terraform can send.
fn sent(headers: &HeaderMap) -> Option<Vec<u8>> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, value) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(value.trim().as_bytes().to_vec());
    }
    let is_basic = scheme.eq_ignore_ascii_case("basic");
    let login = is_basic.then(|| base64(value.trim()))??;
    let colon = login.iter().position(|byte| *byte == b':')?;
    Some(login[colon + 1..].to_vec())
}

/// The bytes that a text in base64 stands for.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        (bits, count) = (bits << 6 | u32::from(value), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn with(value: &str) -> HeaderMap {
        let value = HeaderValue::from_str(value).unwrap();
        HeaderMap::from_iter([(header::AUTHORIZATION, value)])
    }

    #[test]
    fn each_token_has_its_right() {
        let token = |text| Some(Token::new(text).unwrap());
        let mut access = Access {
            full: token("0123456789abcdef"),
            read: token("fedcba9876543210"),
            is_read_only: false,
        };
        let full = with("Bearer 0123456789abcdef");
        assert_eq!(access.right(&full), Right::Act);
        assert_eq!(access.right(&with("bearer fedcba9876543210")), Right::Look);
        // `any:0123456789abcdef`
        let basic = with("Basic YW55OjAxMjM0NTY3ODlhYmNkZWY=");
        assert_eq!(access.right(&basic), Right::Act);
        for wrong in ["Bearer 0123456789abcdeg", "Bearer ", "Basic !", "0123456789abcdef"] {
            assert_eq!(access.right(&with(wrong)), Right::None, "{wrong}");
        }
        assert_eq!(access.right(&HeaderMap::new()), Right::None);
        access.is_read_only = true;
        assert_eq!(access.right(&full), Right::Look);
    }

    #[test]
    fn without_tokens_each_client_may_act_unless_it_is_read_only() {
        let mut access = Access::default();
        assert_eq!(access.right(&HeaderMap::new()), Right::Act);
        access.is_read_only = true;
        assert_eq!(access.right(&HeaderMap::new()), Right::Look);
    }

    #[test]
    fn a_token_that_could_be_guessed_or_not_be_sent_is_refused() {
        for bad in ["", "short", "0123456789 abcdef", "0123456789abcdé0"] {
            assert!(Token::new(bad).is_err(), "{bad}");
        }
        assert!(!format!("{:?}", Token::new("0123456789abcdef\n").unwrap()).contains("0123"));
    }

    #[test]
    fn base64_is_read() {
        assert_eq!(base64("YW55OnNlY3JldA==").unwrap(), b"any:secret");
        assert_eq!(base64("YQ").unwrap(), b"a");
        assert_eq!(base64("Y Q"), None);
    }
}
