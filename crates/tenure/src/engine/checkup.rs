//! Findings about a store, with advice.

/// One finding of a check-up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The topic, in a word or two.
    pub topic: &'static str,
    /// How serious it is.
    pub severity: Severity,
    /// The finding.
    pub found: String,
    /// The remedy; empty if the finding is [`Severity::Fine`].
    pub advice: String,
}

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// As expected.
    Fine,
    /// Worth knowing: a promise depends on it.
    Warning,
    /// Locks will be lost, or are at risk.
    Problem,
}

impl Finding {
    /// Creates a finding that is fine.
    pub fn fine(topic: &'static str, found: impl Into<String>) -> Self {
        let (found, advice) = (found.into(), String::new());
        Self { topic, severity: Severity::Fine, found, advice }
    }

    /// Creates a finding that is not fine, with its remedy.
    pub fn bad(
        topic: &'static str,
        severity: Severity,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { topic, severity, found: found.into(), advice: advice.into() }
    }
}
