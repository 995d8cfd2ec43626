//! The shared state of a proxy's threads: rules, record, modes and connections, behind one mutex, and the
//! condition variable for its changes.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use super::Direction;
use super::command::Command;
use super::link::Link;
use super::rules::{Rule, Rules, Verdict};
use crate::endpoint::Endpoint;

pub(super) struct Hub {
    state: Mutex<State>,
    changed: Condvar,
}

pub(super) struct State {
    /// Where new connections lead.
    pub(super) endpoint: Endpoint,
    pub(super) rules: Rules,
    pub(super) record: Vec<Command>,
    pub(super) messages: usize,
    pub(super) is_dark: bool,
    pub(super) refuses: bool,
    pub(super) drops_messages: bool,
    pub(super) is_over: bool,
    pub(super) links: Vec<Arc<Link>>,
    pub(super) threads: Vec<JoinHandle<()>>,
}

impl State {
    pub(super) fn go_dark(&mut self) {
        self.is_dark = true;
        self.links.iter().for_each(|link| link.go_dark());
    }

    pub(super) fn close_links(&self) {
        self.links.iter().for_each(|link| link.close());
    }
}

impl Hub {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        let state = State {
            endpoint,
            rules: Rules::default(),
            record: Vec::new(),
            messages: 0,
            is_dark: false,
            refuses: false,
            drops_messages: false,
            is_over: false,
            links: Vec::new(),
            threads: Vec::new(),
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn read<T>(&self, ask: impl FnOnce(&State) -> T) -> T {
        ask(&self.lock())
    }

    /// Changes the state, and wakes the threads that wait for a change.
    pub(super) fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let outcome = act(&mut self.lock());
        self.changed.notify_all();
        outcome
    }

    /// Records a request and applies the rules; on a dark link it is only recorded.
    pub(super) fn request(&self, command: &Command, link: &Link) -> Verdict {
        let mut state = self.lock();
        state.record.push(command.clone());
        if !link.carries() {
            return Verdict::default();
        }
        state.rules.apply(Direction::Requests, command)
    }

    /// Applies the rules to a reply to this command.
    pub(super) fn reply(&self, command: &Command, link: &Link) -> Verdict {
        let mut state = self.lock();
        if !link.carries() {
            return Verdict::default();
        }
        state.rules.apply(Direction::Replies, command)
    }

    /// Counts a message to a subscriber, and returns whether it may pass.
    pub(super) fn message(&self) -> bool {
        let mut state = self.lock();
        state.messages += 1;
        !state.drops_messages
    }

    /// Waits until a message is due and nothing holds it, or its link carries nothing any more.
    pub(super) fn wait(&self, link: &Link, due: Option<Instant>, holds: &[Rule]) {
        let mut state = self.lock();
        while link.carries() {
            if state.rules.hold(holds) {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let early = due.map(|due| due.saturating_duration_since(now()));
            let Some(early) = early.filter(|early| !early.is_zero()) else {
                return;
            };
            let woken = self.changed.wait_timeout(state, early);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A panic while the mutex was held came from the test's own function, and left no change incomplete.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::disallowed_methods, reason = "a delay is by the clock; no lease depends on it")]
pub(super) fn now() -> Instant {
    Instant::now()
}
