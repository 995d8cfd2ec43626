//! Errors of several nodes, as one.

use super::Quorum;
use crate::error::StoreError;

impl Quorum {
    /// Too many nodes did not answer for a majority. The message names them.
    pub(super) fn failure(&self, errors: &[Option<StoreError>], is_unknown: bool) -> StoreError {
        self.failure_of(self.size.majority(), errors, is_unknown)
    }

    /// The same for an operation that needs so many nodes: a semaphore needs more than a majority.
    pub(super) fn failure_of(
        &self,
        needed: usize,
        errors: &[Option<StoreError>],
        is_unknown: bool,
    ) -> StoreError {
        let failed: Vec<_> = self.nodes.iter().zip(errors).collect();
        let failed = failed.iter().filter_map(|(node, error)| error.as_ref().map(|it| (node, it)));
        let mut what = format!(
            "{} of {} nodes did not answer, and {needed} are needed",
            failed.clone().count(),
            self.nodes.len(),
        );
        for (node, error) in failed.clone() {
            what.push_str(&format!("; {}: {error}", node.name));
        }
        let is_lasting = failed.clone().filter(|(_, error)| error.is_lasting()).count()
            > self.nodes.len() - needed;
        let is_answer = failed.clone().any(|(_, error)| error.is_answer());
        let error = if is_unknown { StoreError::unknown(what) } else { StoreError::refused(what) };
        let error = if is_lasting { error.lasting() } else { error };
        if is_answer { error.answered() } else { error }
    }
}

/// The operation was overtaken by a cancel.
pub(super) fn cancelled() -> StoreError {
    StoreError::refused("the lock was released or cancelled before it could be acquired")
}

pub(super) fn closed() -> StoreError {
    StoreError::unknown("the client was closed")
}
