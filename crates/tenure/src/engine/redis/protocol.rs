//! The format in which locks are stored on a server: Tenure's own, or Redisson's, which Java services share.
//!
//! The connections, the batches and the requests are the same for both. A format decides which scripts are run (see
//! [`scripts`](super::scripts)), the names of keys, and the channels on which waiters are notified.

use std::borrow::Cow;

use super::address::refuse;
use super::keys;
use super::slot;
use crate::core::name::LockName;
use crate::core::shape::Kind;
use crate::error::{Invalid, StoreError};

/// The channel on which Tenure's clients are notified that a lock in Redisson's format was taken away.
pub(super) const LOST: &str = "tenure:redisson:lost";

/// The prefix of the key with the holders of a semaphore that Tenure knows.
const PERMITS: &str = "tenure_permits:";

/// The format in which locks are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    #[default]
    Tenure,
    Redisson {
        /// A mutex is an `RFencedLock`, and not an `RLock`.
        is_fenced: bool,
    },
}

impl Protocol {
    /// The format that a URL names, and the URL without it.
    ///
    /// # Errors
    /// When it names one that is not known.
    pub(super) fn take(url: &str) -> Result<(Self, Cow<'_, str>), Invalid> {
        let Some((base, query)) = url.split_once('?') else {
            return Ok((Self::Tenure, url.into()));
        };
        let (query, fragment) = query.split_once('#').map_or((query, None), |(q, f)| (q, Some(f)));
        let (mut protocol, mut fenced, mut others) = (None, None, Vec::new());
        for parameter in query.split('&') {
            match parameter.split_once('=') {
                Some(("protocol", name)) => protocol = Some(name),
                Some(("fenced", value)) => fenced = Some(value),
                _ => others.push(parameter),
            }
        }
        let protocol = match (protocol, fenced) {
            (None, None) => return Ok((Self::Tenure, url.into())),
            (Some("redisson"), None | Some("false")) => Self::Redisson { is_fenced: false },
            (Some("redisson"), Some("true")) => Self::Redisson { is_fenced: true },
            (Some("redisson"), Some(_)) => return Err(refuse("`fenced` is true or false")),
            (None, Some(_)) => return Err(refuse("`fenced` belongs to `protocol=redisson`")),
            (Some(_), _) => return Err(refuse("the only other protocol is `protocol=redisson`")),
        };
        let mut url = base.to_owned();
        if !others.is_empty() {
            url = format!("{url}?{}", others.join("&"));
        }
        if let Some(fragment) = fragment {
            url = format!("{url}#{fragment}");
        }
        Ok((protocol, url.into()))
    }

    /// The format that the builder and the URL name together: with fences if one of them asks for these.
    pub(super) fn and(self, other: Self) -> Self {
        let is_fenced = |it| matches!(it, Self::Redisson { is_fenced: true });
        match self.is_redisson() || other.is_redisson() {
            true => Self::Redisson { is_fenced: is_fenced(self) || is_fenced(other) },
            false => Self::Tenure,
        }
    }

    pub(super) fn is_redisson(self) -> bool {
        matches!(self, Self::Redisson { .. })
    }

    /// Whether the grants of a mutex have fences.
    pub(super) fn has_fences(self) -> bool {
        !matches!(self, Self::Redisson { is_fenced: false })
    }

    /// The key of a lock.
    pub(super) fn lock_key(self, name: &LockName) -> String {
        match self {
            Self::Tenure => keys::lock_key(name),
            Self::Redisson { .. } => name.as_str().to_owned(),
        }
    }

    /// The slot of a lock, in a cluster.
    pub(super) fn slot(self, name: &LockName) -> u16 {
        match self {
            Self::Tenure => keys::slot(name),
            Self::Redisson { .. } => slot::of_key(name.as_str()),
        }
    }

    /// The channel on which the waiters for a lock are notified.
    pub(super) fn channel(self, name: &LockName, kind: Kind, client: &str, slot: u16) -> String {
        let prefix = match (self, kind) {
            (Self::Tenure, _) => {
                return format!("{}{}", keys::CHANNEL, keys::client_in_slot(client, slot));
            }
            (_, Kind::Latch) => return format!("{LATCH}{{{}}}", name.as_str()),
            (_, Kind::ReadWrite) => READERS,
            (_, Kind::Semaphore) => PERMITS_FREED,
            (_, Kind::Mutex | Kind::Barrier) => FREED,
        };
        prefixed(prefix, name.as_str())
    }

    /// The channel to which a client subscribes when it connects.
    pub(super) fn first_channel(self, client: &str) -> String {
        match self {
            Self::Tenure => format!("{}{client}", keys::CHANNEL),
            Self::Redisson { .. } => LOST.to_owned(),
        }
    }

    /// Refuses a name whose keys would be in different slots of a cluster: Redisson cannot use it there, either.
    pub(super) fn check_in_cluster(self, name: &LockName, kind: Kind) -> Result<(), StoreError> {
        let own = self.slot(name);
        let is_split = || {
            slot::of_key(&prefixed(FREED, name.as_str())) != own
                || slot::of_key(&self.channel(name, kind, "", own)) != own
        };
        if self.is_redisson() && is_split() {
            let sentence = "this name cannot be used in Redisson's format on a cluster, where its keys would be on \
                            different nodes: use braces in pairs and with a text between them, or none";
            return Err(StoreError::refused(sentence).lasting());
        }
        Ok(())
    }

    /// A pattern for keys of locks whose names start with `prefix`, and possibly others.
    pub(super) fn pattern(self, prefix: &str) -> String {
        match self {
            Self::Tenure => keys::pattern(prefix),
            Self::Redisson { .. } => format!("*{}*", keys::escape_pattern(prefix)),
        }
    }

    /// The name of the lock with this key, if it may be one and starts with `prefix`.
    pub(super) fn name(self, key: &str, prefix: &str) -> Option<LockName> {
        match self {
            Self::Tenure => keys::name(key),
            Self::Redisson { .. } => {
                let raw = key.strip_prefix(PERMITS).map_or(key, name_in_own_key);
                raw.starts_with(prefix).then(|| LockName::new(raw).ok())?
            }
        }
    }
}

const FREED: &str = "redisson_lock__channel";
const READERS: &str = "redisson_rwlock";
const PERMITS_FREED: &str = "redisson_sc";
const LATCH: &str = "redisson_countdownlatch__channel__";

/// A text in the slot of a lock, as Redisson makes it.
fn prefixed(prefix: &str, raw: &str) -> String {
    if raw.contains('{') { format!("{prefix}:{raw}") } else { format!("{prefix}:{{{raw}}}") }
}

/// The name within the braces that Redisson adds to it.
fn unwrapped(text: &str) -> &str {
    text.strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'))
        .filter(|text| !text.contains('{'))
        .unwrap_or(text)
}

/// The name of a lock in a key of Tenure's own, after its prefix: `{x}` for `x`, and `:{x}` for `{x}`, so that they differ.
fn name_in_own_key(text: &str) -> &str {
    text.strip_prefix(':').unwrap_or_else(|| unwrapped(text))
}

/// The locks whose waiters a message on this channel is for. `x` and `{x}` are two locks with the same channel.
pub(super) fn names_of_channel(channel: &str) -> Vec<LockName> {
    let of_latch =
        channel.strip_prefix(LATCH).and_then(|it| it.strip_prefix('{')?.strip_suffix('}'));
    let texts = match of_latch {
        Some(raw) => vec![raw],
        None => {
            let raw = [FREED, READERS, PERMITS_FREED]
                .iter()
                .find_map(|prefix| channel.strip_prefix(prefix)?.strip_prefix(':'));
            let Some(raw) = raw else { return Vec::new() };
            let inner = unwrapped(raw);
            if inner == raw { vec![raw] } else { vec![inner, raw] }
        }
    };
    texts.into_iter().filter_map(|text| LockName::new(text).ok()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAIN: Protocol = Protocol::Redisson { is_fenced: false };

    #[test]
    fn a_url_names_the_protocol() {
        let taken = |url| Protocol::take(url).map(|(protocol, url)| (protocol, url.into_owned()));
        let fenced = Protocol::Redisson { is_fenced: true };
        assert_eq!(taken("redis://h").unwrap(), (Protocol::Tenure, "redis://h".into()));
        assert_eq!(taken("redis://h?protocol=redisson").unwrap(), (PLAIN, "redis://h".into()));
        let tls = taken("rediss://h?ca=a&protocol=redisson&fenced=true&key=k").unwrap();
        assert_eq!(tls, (fenced, "rediss://h?ca=a&key=k".into()));
        assert_eq!(taken("rediss://h?ca=a").unwrap(), (Protocol::Tenure, "rediss://h?ca=a".into()));
        for url in ["redis://u:secret@h?protocol=3", "redis://u:secret@h?fenced=true"] {
            let refused = taken(url).unwrap_err().to_string();
            assert!(
                refused.contains("protocol=redisson") && !refused.contains("secret"),
                "{refused}"
            );
        }
    }

    #[test]
    fn the_builder_and_the_url_are_combined() {
        let fenced = Protocol::Redisson { is_fenced: true };
        for (one, other, both) in [
            (Protocol::Tenure, Protocol::Tenure, Protocol::Tenure),
            (Protocol::Tenure, PLAIN, PLAIN),
            (Protocol::Tenure, fenced, fenced),
            (PLAIN, PLAIN, PLAIN),
            (PLAIN, fenced, fenced),
        ] {
            assert_eq!((one.and(other), other.and(one)), (both, both), "{one:?} and {other:?}");
        }
    }

    proptest! {
        /// R36: whatever a name is, its waiters are found by the channel.
        #[test]
        fn a_message_finds_the_lock(name in "[^\0]{0,20}[{}]{0,3}[^\0]{1,20}", kind in 0..4) {
            let kind = [Kind::Mutex, Kind::ReadWrite, Kind::Semaphore, Kind::Latch][kind as usize];
            let name = LockName::new(name).unwrap();
            let channel = PLAIN.channel(&name, kind, "", 0);
            prop_assert!(names_of_channel(&channel).contains(&name), "{}", channel);
        }

        #[test]
        fn no_channel_makes_the_parser_panic(channel: String) {
            let _ = names_of_channel(&channel);
            let _ = names_of_channel(&format!("{LATCH}{channel}"));
            let _ = names_of_channel(&format!("{FREED}:{channel}"));
        }
    }

    #[test]
    fn the_name_of_a_semaphore_is_read_from_the_key_of_its_holders() {
        for (key, name) in [
            ("tenure_permits:{x}", "x"),
            ("tenure_permits:{a}b}", "a}b"),
            ("tenure_permits::{x}", "{x}"),
            ("tenure_permits:::{x}", ":{x}"),
            ("tenure_permits::a{b", "a{b"),
        ] {
            assert_eq!(PLAIN.name(key, ""), Some(LockName::new(name).unwrap()), "{key}");
        }
    }

    #[test]
    fn keys_of_one_lock_are_in_one_slot() {
        let checked = |name| PLAIN.check_in_cluster(&LockName::new(name).unwrap(), Kind::Mutex);
        for name in ["orders", "{orders}:1", "a{b}c", "orders/42"] {
            checked(name).unwrap();
        }
        for name in ["a{b", "a}b", "a{}b", "{"] {
            assert!(checked(name).unwrap_err().is_lasting(), "{name}");
        }
        let latch = LockName::new("a{b}c").unwrap();
        PLAIN.check_in_cluster(&latch, Kind::Latch).unwrap_err();
    }
}
