//! What can go wrong, told apart by type (I6): refused input, busy, timed out, lost, store
//! unreachable, outcome unknown.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::core::name::LockName;
use crate::core::shape::Kind;

/// Input that is refused before anything is done, in a sentence that says what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(Cow<'static, str>);

impl Invalid {
    pub(crate) fn new(sentence: impl Into<Cow<'static, str>>) -> Self {
        Self(sentence.into())
    }
}

/// Why an acquire, renewal or release did not succeed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input was refused; nothing was done.
    #[error(transparent)]
    Invalid(#[from] Invalid),

    /// Others held the lock at every one of the attempts allowed.
    #[error("`{name}` was busy at all {attempts} attempts")]
    Busy {
        /// The lock.
        name: LockName,
        /// How many attempts were made.
        attempts: u32,
    },

    /// The lock did not become free within the time allowed.
    #[error("`{name}` was not free within {waited:.1?}")]
    TimedOut {
        /// The lock.
        name: LockName,
        /// How long was waited.
        waited: Duration,
    },

    /// The lock was held, and is not any more.
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

    /// The owner holds fewer permits of this lock than it now asks for. Waiting for itself
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

    /// The store refused, or could not be reached, before anything was done.
    #[error("could not {action} `{name}`: {trouble}")]
    Unreachable {
        /// The lock.
        name: LockName,
        /// What was tried.
        action: &'static str,
        /// What the store or the network said.
        #[source]
        trouble: StoreError,
    },

    /// The request may or may not have taken effect: its reply never came. Whatever it may have
    /// left behind is being undone in the background, and ends with the lease at the latest; only the
    /// count of a latch stays.
    #[error("it is unknown whether `{name}` was affected by the attempt to {action} it: {trouble}")]
    Unknown {
        /// The lock.
        name: LockName,
        /// What was tried.
        action: &'static str,
        /// What the store or the network said.
        #[source]
        trouble: StoreError,
    },

    /// The store could not be reached, or refused the login, when the client was made.
    #[error("the store cannot be used: {trouble}")]
    Connect {
        /// What the store or the network said.
        #[source]
        trouble: StoreError,
    },

    /// The locks could not be listed.
    #[error("could not list locks: {trouble}")]
    List {
        /// What the store or the network said.
        #[source]
        trouble: StoreError,
    },

    /// The client's own thread could not be started.
    #[error("could not start Tenure's thread: {source}")]
    Thread {
        /// What the operating system said.
        source: Arc<std::io::Error>,
    },

    /// The process was forked after the client was made. The child has no right to the parent's
    /// locks, and none of its threads.
    #[error(
        "this client was made before the process was forked: connect after the fork, in the process \
         that uses it"
    )]
    Forked,

    /// The client's own thread has ended by a panic, in the engine or in Tenure itself. All that the
    /// client held is lost, and it can do nothing any more.
    #[error("Tenure's own thread has ended by a panic: connect again, and report the panic")]
    Ended,
}

impl Error {
    /// The error of an action on a lock that met trouble with the store.
    pub(crate) fn from_store(name: &LockName, action: &'static str, trouble: StoreError) -> Self {
        let name = name.clone();
        match trouble.outcome {
            Effect::Forked => Self::Forked,
            Effect::None => Self::Unreachable { name, action, trouble },
            Effect::Unknown => Self::Unknown { name, action, trouble },
        }
    }
}

/// The lock was lost: its lease ended, or somebody forced its release.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` was lost: {why}")]
pub struct Lost {
    pub(crate) name: LockName,
    pub(crate) why: WhyLost,
}

impl Lost {
    /// The lock.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Why it was lost.
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
    /// The store said that this owner does not hold the lock any more: its lease ended there, it
    /// was released by another process with its handle, or an operator forced its release.
    NotHeld,
    /// The client's own thread has ended by a panic, and nothing renews the lease any more.
    Ended,
    /// This process is a forked child, and the lock is held by the process that it comes from.
    Forked,
}

impl std::fmt::Display for WhyLost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::LeaseEnded => "its lease ended before a renewal was confirmed",
            Self::SteppedDown => "no renewal was confirmed within the renew deadline",
            Self::NotHeld => "the store says that this owner no longer holds it",
            Self::Ended => "the client's own thread has ended by a panic",
            Self::Forked => "it is held by the process that this one was forked from",
        })
    }
}

/// StoreError between a client and its store, and what it means for the operation (I6).
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
pub struct StoreError {
    what: Arc<str>,
    outcome: Effect,
    is_answer: bool,
    is_lasting: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    Unknown,
    /// None, because this is a forked child.
    Forked,
}

impl StoreError {
    /// The store did not do it: refused, or never reached.
    pub fn refused(what: impl Into<Arc<str>>) -> Self {
        Self { what: what.into(), outcome: Effect::None, is_answer: false, is_lasting: false }
    }

    /// No reply: it may have been done, or not.
    pub fn unknown(what: impl Into<Arc<str>>) -> Self {
        Self { what: what.into(), outcome: Effect::Unknown, is_answer: false, is_lasting: false }
    }

    /// The client belongs to the process that this one was forked from.
    pub(crate) fn forked() -> Self {
        let what = "this client was made before the process was forked".into();
        Self { what, outcome: Effect::Forked, is_answer: false, is_lasting: true }
    }

    /// Whether the operation may have taken effect.
    pub fn is_unknown(&self) -> bool {
        self.outcome == Effect::Unknown
    }

    /// The same, and the store itself has said it.
    #[must_use]
    pub fn answered(self) -> Self {
        Self { is_answer: true, ..self }
    }

    /// Whether the store itself has said it, and so was reached.
    pub fn is_answer(&self) -> bool {
        self.is_answer
    }

    /// The same, and it stays until a person removes its cause: a wrong password, for example.
    #[must_use]
    pub fn lasting(self) -> Self {
        Self { is_lasting: true, ..self }
    }

    /// Whether it stays until a person removes its cause, so that it is of no use to try again.
    /// Where this is not known, it is false.
    pub fn is_lasting(&self) -> bool {
        self.is_lasting
    }

    /// This trouble after an earlier one of the same operation: a later refusal does not undo
    /// what an unanswered attempt may have done.
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

    /// I6: a refusal of the second attempt says nothing of the first.
    #[test]
    fn unknown_stays_unknown_after_a_later_refusal() {
        let first = StoreError::unknown("no reply");
        assert!(StoreError::refused("refused").after(Some(&first)).is_unknown());
        assert!(!StoreError::refused("refused").after(None).is_unknown());
    }
}
