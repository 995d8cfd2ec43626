//! Errors, distinguished by type (I6): invalid input, busy, timed out, lost, store unreachable,
//! outcome unknown.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::core::name::LockName;
use crate::core::replicas::Replicas;
use crate::core::shape::Kind;

/// Invalid input, refused before any operation. The message says what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(Cow<'static, str>);

impl Invalid {
    pub(crate) fn new(sentence: impl Into<Cow<'static, str>>) -> Self {
        Self(sentence.into())
    }
}

/// The error of an acquire, renewal or release.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input was invalid; nothing was done.
    #[error(transparent)]
    Invalid(#[from] Invalid),

    /// The lock was busy at all allowed attempts.
    #[error("`{name}` was busy at all {attempts} attempts")]
    Busy {
        /// The lock.
        name: LockName,
        /// How many attempts were made.
        attempts: u32,
    },

    /// The lock did not become free within the allowed time.
    #[error("`{name}` was not free within {waited:.1?}")]
    TimedOut {
        /// The lock.
        name: LockName,
        /// How long the caller has waited.
        waited: Duration,
    },

    /// The lock was held, and was lost.
    #[error(transparent)]
    Lost(#[from] Lost),

    /// The name is in use for another kind of lock, or with another limit.
    #[error("`{name}` is in use as a {kind} with limit {limit}: use another name")]
    Mismatch {
        /// The lock.
        name: LockName,
        /// What the name is in use for.
        kind: Kind,
        /// The limit it is in use with.
        limit: u32,
    },

    /// The owner holds fewer permits of this lock than it now requests. Waiting for itself
    /// would be a deadlock.
    #[error(
        "`{name}` is held by the same owner with {held} permits: release it before asking for more"
    )]
    Upgrade {
        /// The lock.
        name: LockName,
        /// The permits that the owner holds.
        held: u32,
    },

    /// The store refused, or could not be reached. Nothing was done.
    #[error("could not {action} `{name}`: {error}")]
    Unreachable {
        /// The lock.
        name: LockName,
        /// The action that failed.
        action: &'static str,
        /// The error of the store or the network.
        #[source]
        error: StoreError,
    },

    /// The request may or may not have taken effect: no reply was received. Its possible effect is being
    /// undone in the background, and ends with the lease at the latest; only the count of a latch stays.
    #[error("it is unknown whether `{name}` was affected by the attempt to {action} it: {error}")]
    Unknown {
        /// The lock.
        name: LockName,
        /// The action that failed.
        action: &'static str,
        /// The error of the store or the network.
        #[source]
        error: StoreError,
    },

    /// Fewer replicas than asked for have confirmed the lock in time. An acquire has released it again, or does so in the
    /// background if the store does not answer; after a renewal the old deadline stands.
    #[error(
        "could not {action} `{name}`: {replicas} of {wanted} replicas confirmed it within {within:?}; check \
         the server's replicas, or wait for fewer or for longer"
    )]
    Unreplicated {
        /// The lock.
        name: LockName,
        /// The action that failed.
        action: &'static str,
        /// How many replicas have confirmed it.
        replicas: u32,
        /// How many were asked for.
        wanted: u32,
        /// How long they had time.
        within: Duration,
    },

    /// The store could not be reached, or refused the login, when the client connected.
    #[error("the store cannot be used: {error}")]
    Connect {
        /// The error of the store or the network.
        #[source]
        error: StoreError,
    },

    /// The locks could not be listed.
    #[error("could not list locks: {error}")]
    List {
        /// The error of the store or the network.
        #[source]
        error: StoreError,
    },

    /// The client's own thread could not be started.
    #[error("could not start Tenure's thread: {source}")]
    Thread {
        /// The error of the operating system.
        source: Arc<std::io::Error>,
    },

    /// The process was forked after the client was made. The child has neither the parent's locks nor its
    /// threads.
    #[error(
        "this client was made before the process was forked: connect after the fork, in the process \
         that uses it"
    )]
    Forked,

    /// A panic in the engine or in Tenure itself has ended the client's own thread. All locks of the client
    /// are lost, and every later call fails.
    #[error("a panic has ended Tenure's own thread: connect again, and report the panic")]
    Ended,
}

impl Error {
    /// The error of an action on a lock for which the store failed.
    pub(crate) fn from_store(name: &LockName, action: &'static str, error: StoreError) -> Self {
        let name = name.clone();
        match error.outcome {
            Effect::Forked => Self::Forked,
            Effect::None => Self::Unreachable { name, action, error },
            Effect::Unknown => Self::Unknown { name, action, error },
        }
    }

    /// The same error, where an earlier part of the action may still have an effect.
    pub(crate) fn with_effect_unknown(self) -> Self {
        match self {
            Self::Unreachable { name, action, error } => {
                let error = StoreError { outcome: Effect::Unknown, ..error };
                Self::Unknown { name, action, error }
            }
            error => error,
        }
    }

    /// The error of an action that so many replicas have confirmed, fewer than asked for.
    pub(crate) fn unreplicated(
        name: &LockName,
        action: &'static str,
        count: u32,
        asked: Replicas,
    ) -> Self {
        let (wanted, within) = (asked.count(), asked.within());
        Self::Unreplicated { name: name.clone(), action, replicas: count, wanted, within }
    }
}

/// The loss of a lock: its lease ended, or an operator forced its release.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` was lost: {why}")]
pub struct Lost {
    pub(crate) name: LockName,
    pub(crate) why: WhyLost,
}

impl Lost {
    /// Returns the lock's name.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Returns why it was lost.
    pub fn why(&self) -> WhyLost {
        self.why
    }
}

/// Why a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyLost {
    /// The lease ended before a renewal was confirmed.
    LeaseEnded,
    /// No renewal was confirmed within the renew deadline of an election.
    SteppedDown,
    /// The store reported that this owner does not hold the lock any more: its lease ended there, another
    /// process released it with its handle, or an operator forced its release.
    NotHeld,
    /// A panic has ended the client's own thread, and the lease is not renewed any more.
    Ended,
    /// This process is a forked child, and its parent holds the lock.
    Forked,
}

impl std::fmt::Display for WhyLost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::LeaseEnded => "its lease ended before a renewal was confirmed",
            Self::SteppedDown => "no renewal was confirmed within the renew deadline",
            Self::NotHeld => "the store says that this owner no longer holds it",
            Self::Ended => "a panic has ended the client's own thread",
            Self::Forked => "it is held by the process that this one was forked from",
        })
    }
}

/// An error of the store or of the connection to it, and whether the operation may have taken effect (I6).
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
pub struct StoreError {
    what: Arc<str>,
    outcome: Effect,
    is_answer: bool,
    is_lasting: bool,
    is_quarantined: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    Unknown,
    /// None, because this is a forked child.
    Forked,
}

impl StoreError {
    /// Creates an error of an operation that did not take effect: refused, or not sent.
    pub fn refused(what: impl Into<Arc<str>>) -> Self {
        Self::new(what.into(), Effect::None)
    }

    /// Creates an error of an operation without a reply: it may have taken effect or not.
    pub fn unknown(what: impl Into<Arc<str>>) -> Self {
        Self::new(what.into(), Effect::Unknown)
    }

    fn new(what: Arc<str>, outcome: Effect) -> Self {
        Self { what, outcome, is_answer: false, is_lasting: false, is_quarantined: false }
    }

    /// The client belongs to the process that this one was forked from.
    pub(crate) fn forked() -> Self {
        let what = "this client was made before the process was forked".into();
        Self::new(what, Effect::Forked).lasting()
    }

    /// Returns whether the operation may have taken effect.
    pub fn is_unknown(&self) -> bool {
        self.outcome == Effect::Unknown
    }

    /// Marks the error as an answer of the store itself.
    #[must_use]
    pub fn answered(self) -> Self {
        Self { is_answer: true, ..self }
    }

    /// Returns whether the store itself has answered with this error, and so was reached.
    pub fn is_answer(&self) -> bool {
        self.is_answer
    }

    /// Marks the error as lasting until a person removes its cause: a wrong password, for example.
    #[must_use]
    pub fn lasting(self) -> Self {
        Self { is_lasting: true, ..self }
    }

    /// Returns whether the error lasts until a person removes its cause, so that a retry is useless. False
    /// if this is not known.
    pub fn is_lasting(&self) -> bool {
        self.is_lasting
    }

    /// Marks the error as that of a quarantined node.
    #[cfg(feature = "redis")]
    pub(crate) fn quarantined(self) -> Self {
        Self { is_quarantined: true, ..self }
    }

    /// Returns whether the store is a node of a quorum that lacks the quorum's marker, because it is new or has lost
    /// its data. It refuses all operations on locks until it is marked, so that it cannot vote.
    pub fn is_quarantined(&self) -> bool {
        self.is_quarantined
    }

    /// This error after an earlier one of the same operation: a later refusal does not undo the possible
    /// effect of an attempt without an answer.
    pub(crate) fn after(self, earlier: Option<&Self>) -> Self {
        match earlier {
            Some(earlier) if earlier.is_unknown() => Self { outcome: Effect::Unknown, ..self },
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_lock_and_say_what_happened() {
        let name = LockName::new("orders/42").unwrap();
        let refused = Error::from_store(&name, "renew", StoreError::refused("connection refused"));
        assert_eq!(refused.to_string(), "could not renew `orders/42`: connection refused");
        let unknown = Error::from_store(&name, "release", StoreError::unknown("no reply"));
        assert!(matches!(unknown, Error::Unknown { .. }));
    }

    /// I6: a refusal of the second attempt says nothing about the first.
    #[test]
    fn unknown_stays_unknown_after_a_later_refusal() {
        let first = StoreError::unknown("no reply");
        assert!(StoreError::refused("refused").after(Some(&first)).is_unknown());
        assert!(!StoreError::refused("refused").after(None).is_unknown());
    }
}
