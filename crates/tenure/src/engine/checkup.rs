//! What a store tells about itself, and what to do about it.

/// One thing that a check-up has looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What was looked at, in a word or two.
    pub topic: &'static str,
    /// How it is.
    pub severity: Severity,
    /// What was found.
    pub found: String,
    /// What to do about it; empty where all is well.
    pub advice: String,
}

/// How a finding is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// As it should be.
    Fine,
    /// Worth knowing: a promise depends on it.
    Warning,
    /// Locks will be lost, or are at risk.
    Problem,
}

impl Finding {
    /// All is well.
    pub fn fine(topic: &'static str, found: impl Into<String>) -> Self {
        let (found, advice) = (found.into(), String::new());
        Self { topic, severity: Severity::Fine, found, advice }
    }

    /// It is not, and this is what to do about it.
    pub fn bad(
        topic: &'static str,
        severity: Severity,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { topic, severity, found: found.into(), advice: advice.into() }
    }
}
