//! What waits for a question about its server.
//!
//! A server that was stalled sends many late answers at once. One question at a time confirms all that waited when it was
//! asked; those that arrive meanwhile wait for the next one.

use std::sync::Mutex;

use crate::sync::lock;

/// What waits for a question, of which one is asked at a time.
pub(super) struct Late<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    waiting: Vec<T>,
    /// A task asks, and takes what waits until nothing does.
    is_asking: bool,
}

impl<T> Default for Late<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { waiting: Vec::new(), is_asking: false }) }
    }
}

impl<T> Late<T> {
    /// Adds one. True if the caller must start a task that asks until [`Late::take`] returns none.
    pub(super) fn add(&self, one: T) -> bool {
        let mut state = lock(&self.state);
        state.waiting.push(one);
        !std::mem::replace(&mut state.is_asking, true)
    }

    /// All that wait, for a question that is asked from now on; none if nothing waits, and the task ends.
    pub(super) fn take(&self) -> Option<Vec<T>> {
        let mut state = lock(&self.state);
        if state.waiting.is_empty() {
            state.is_asking = false;
            return None;
        }
        Some(std::mem::take(&mut state.waiting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_question_serves_all_that_waited_before_it() {
        let late = Late::default();
        assert!(late.add(1), "the first starts a task");
        assert!(!late.add(2));
        assert_eq!(late.take(), Some(vec![1, 2]));
        assert!(!late.add(3), "the task still asks");
        assert_eq!(late.take(), Some(vec![3]));
        assert_eq!(late.take(), None);
        assert!(late.add(4), "the task has ended");
    }
}
