//! Lock names, checked when built.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::Invalid;

/// The name of a lock: 1 to 512 bytes of UTF-8 without NUL. It is cheap to clone.
///
/// # Examples
///
/// ```
/// use tenure::LockName;
///
/// let name = LockName::new("orders/42")?;
/// assert_eq!(name.as_str(), "orders/42");
/// assert!(LockName::new("").is_err());
/// # Ok::<(), tenure::Invalid>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

impl LockName {
    /// The longest name, in bytes: long enough for any path-like name, short enough for a
    /// million of them to fit in a store.
    pub const MAX_BYTES: usize = 512;

    /// Checks `name`.
    ///
    /// # Errors
    /// Returns an error if it is empty, longer than [`LockName::MAX_BYTES`], or contains a NUL character.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Invalid> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(Invalid::new("a lock name must not be empty: give it 1 to 512 bytes"));
        }
        if name.len() > Self::MAX_BYTES {
            return Err(Invalid::new(format!(
                "a lock name may have at most {} bytes, and this one has {}",
                Self::MAX_BYTES,
                name.len()
            )));
        }
        if let Some(at) = name.find('\0') {
            return Err(Invalid::new(format!(
                "a lock name may not hold a NUL character, and this one has one at byte {at}"
            )));
        }
        Ok(Self(name.into()))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName {
    /// Formats the name with control characters escaped, so that a hostile name cannot rewrite a
    /// terminal or forge a log entry.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if is_treacherous(c) { write!(f, "{}", c.escape_unicode())? } else { write!(f, "{c}")? }
        }
        Ok(())
    }
}

/// Control characters, and characters that reorder or hide the text around them.
fn is_treacherous(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for LockName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for LockName {
    type Err = Invalid;

    fn from_str(name: &str) -> Result<Self, Invalid> {
        Self::new(name)
    }
}

impl TryFrom<&str> for LockName {
    type Error = Invalid;

    fn try_from(name: &str) -> Result<Self, Invalid> {
        Self::new(name)
    }
}

impl TryFrom<String> for LockName {
    type Error = Invalid;

    fn try_from(name: String) -> Result<Self, Invalid> {
        Self::new(name)
    }
}

impl TryFrom<&String> for LockName {
    type Error = Invalid;

    fn try_from(name: &String) -> Result<Self, Invalid> {
        Self::new(name)
    }
}

impl TryFrom<&LockName> for LockName {
    type Error = Invalid;

    fn try_from(name: &LockName) -> Result<Self, Invalid> {
        Ok(name.clone())
    }
}

impl From<std::convert::Infallible> for Invalid {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_to_512_bytes() {
        assert!(LockName::new("x").is_ok());
        assert!(LockName::new("é".repeat(256)).is_ok());
        assert!(LockName::new("x".repeat(513)).is_err());
        assert!(LockName::new("").is_err());
    }

    #[test]
    fn nul_is_refused_with_its_position() {
        let refused = LockName::new("ab\0c").unwrap_err();
        assert!(refused.to_string().contains("byte 2"), "{refused}");
    }

    #[test]
    fn hostile_names_are_shown_escaped() {
        let name = LockName::new("a\u{1b}[2J\nb\u{202e}c\u{2066}\u{61c}").unwrap();
        assert_eq!(name.to_string(), "a\\u{1b}[2J\\u{a}b\\u{202e}c\\u{2066}\\u{61c}");
    }
}
