//! Groups of locks: the one thing about a lock's name that metrics may have as a label.
//!
//! Names are unbounded, and a metric has a time series for each value of a label. So a caller gives each lock a group, and a
//! process has 64 of them at most; further ones count as `other`.

use std::sync::OnceLock;

use crate::error::Invalid;

/// How many groups a process has.
const MOST: usize = 64;

/// The longest name of a group.
const LONGEST: usize = 64;

const OTHER: &str = "other";

/// The names of the groups, in the order in which they were first used.
static NAMES: [OnceLock<&'static str>; MOST] = [const { OnceLock::new() }; MOST];

/// The group of a lock: one byte, because there may be hundreds of thousands of holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(u8);

impl Group {
    /// No group was given.
    pub(crate) const NONE: Self = Self(u8::MAX);

    /// All groups beyond the bound.
    const REST: Self = Self(u8::MAX - 1);

    /// The group of this name.
    pub(crate) fn named(name: &str) -> Result<Self, Invalid> {
        let is_plain =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':');
        if name.is_empty() || name.len() > LONGEST || !name.chars().all(is_plain) {
            return Err(Invalid::new(format!(
                "a group's name has 1 to {LONGEST} letters, digits and characters of `_-./:`, unlike {name:?}"
            )));
        }
        // Leaked, because a label lives as long as its metric: as often as there are groups, at most.
        let leaked = || &*Box::leak(name.to_owned().into_boxed_str());
        let found = NAMES.iter().position(|slot| *slot.get_or_init(leaked) == name);
        Ok(found.and_then(|at| u8::try_from(at).ok()).map_or(Self::REST, Self))
    }

    /// The value of the label; none if no group was given.
    pub(crate) fn label(self) -> Option<&'static str> {
        match self {
            Self::NONE => None,
            Self::REST => Some(OTHER),
            Self(at) => NAMES.get(usize::from(at)).and_then(OnceLock::get).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because the names are those of the process.
    #[test]
    fn groups_are_bounded_and_keep_their_names() {
        assert_eq!(Group::NONE.label(), None);
        let orders = Group::named("orders").unwrap();
        assert_eq!(orders.label(), Some("orders"));
        assert_eq!(Group::named("orders"), Ok(orders));
        let many: Vec<_> =
            (0..100).map(|number| Group::named(&format!("g{number}")).unwrap()).collect();
        assert!(many.iter().filter(|group| group.label() == Some("other")).count() >= 100 - MOST);
        assert_eq!(many[0].label(), Some("g0"));
        assert_eq!(Group::named("orders").unwrap().label(), Some("orders"));
        for wrong in ["", "a b", "é", "a\"", &"x".repeat(65)] {
            assert!(Group::named(wrong).is_err(), "{wrong}");
        }
    }
}
