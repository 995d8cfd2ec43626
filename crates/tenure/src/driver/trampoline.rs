//! What calls back does not call deeper.
//!
//! An engine may answer at once, and may deliver a wake-up from within the operation that causes it:
//! so an answer leads to a question, its answer to the next, and a release here to a grant there, a
//! release there to a grant here. Each of these is an [`Event`]. The first on a thread is handled where
//! it happens, with no hop to another thread; those that it causes wait until it is done, and then
//! follow in a loop. So the stack stays as deep as one of them needs.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use super::wait_group::WaitGroupId;
use super::{Driver, foreign};
use crate::engine::Wakeup;

/// How many events a thread handles in a row. It is a caller's thread, which has other work, or the
/// driver's, which has leases to renew (I9): what follows is another task of the driver.
const IN_A_ROW: usize = 64;

/// Something to react to.
pub(super) enum Event {
    /// The engine says something.
    Wakeup(Wakeup),
    /// A line should ask the store.
    Ask(WaitGroupId),
}

type Waiting = VecDeque<(Arc<Driver>, Event)>;

thread_local! {
    /// What follows the event that this thread handles; none while it handles none.
    static WAITING: RefCell<Option<Waiting>> = const { RefCell::new(None) };
}

impl Driver {
    /// Reacts to an event: now, or when this thread is done with the one that caused it.
    pub(super) fn react(self: &Arc<Self>, event: Event) {
        let mut event = Some(event);
        let is_first = WAITING.try_with(|waiting| {
            let mut waiting = waiting.borrow_mut();
            match &mut *waiting {
                Some(events) => {
                    events.extend(event.take().map(|event| (self.clone(), event)));
                    false
                }
                None => {
                    *waiting = Some(Waiting::new());
                    true
                }
            }
        });
        let Some(event) = event else { return };
        match is_first {
            Ok(_) => {
                self.handle(event);
                follow();
            }
            // The thread is ending, and cannot keep a list any more.
            Err(_) => self.react_elsewhere(event),
        }
    }

    /// Reacts on the driver's thread.
    fn react_elsewhere(self: &Arc<Self>, event: Event) {
        let driver = self.clone();
        self.spawn(async move { driver.react(event) });
    }

    /// Handles one event. A panic in it is the engine's or our own: then nothing is certain here any
    /// more, and the driver ends. Whose thread this is has nothing to do with it.
    fn handle(self: &Arc<Self>, event: Event) {
        let handled = foreign::call(|| match event {
            Event::Wakeup(wakeup) => self.woken(wakeup),
            Event::Ask(group) => self.put_question(group),
        });
        if handled.is_none() {
            self.end();
        }
    }
}

/// Handles what the first event has caused, and what that has caused.
fn follow() {
    for _ in 0..IN_A_ROW {
        let next = WAITING.with(|waiting| {
            let mut waiting = waiting.borrow_mut();
            let next = waiting.as_mut().and_then(VecDeque::pop_front);
            if next.is_none() {
                *waiting = None;
            }
            next
        });
        let Some((driver, event)) = next else { return };
        driver.handle(event);
    }
    let rest = WAITING.with(|waiting| waiting.borrow_mut().take());
    for (driver, event) in rest.into_iter().flatten() {
        driver.react_elsewhere(event);
    }
}
