//! Callbacks do not nest.
//!
//! An engine may answer at once, and may deliver a wake-up from within the operation that causes it:
//! so an answer leads to a question, its answer to the next, and a release here to a grant there, a
//! release there to a grant here. Each of these is an [`Event`]. The first on a thread is handled where
//! it happens, without a switch to another thread; the events that it causes are queued until it is
//! done, and then handled in a loop. So the stack stays as deep as one event needs.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use super::wait_group::WaitGroupId;
use super::{Driver, foreign};
use crate::engine::Wakeup;

/// How many events a thread handles in a row. It is a caller's thread, which has other work, or the
/// driver's, which has leases to renew (I9): the rest become a task of the driver.
const IN_A_ROW: usize = 64;

/// Something to react to.
pub(super) enum Event {
    /// A wake-up of the engine.
    Wakeup(Wakeup),
    /// A wait group should ask the store.
    Ask(WaitGroupId),
}

type Waiting = VecDeque<(Arc<Driver>, Event)>;

thread_local! {
    /// The events queued behind the one that this thread handles; none while it handles none.
    static WAITING: RefCell<Option<Waiting>> = const { RefCell::new(None) };
}

impl Driver {
    /// Handles an event now, or when this thread is done with the event that caused it.
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
            // The thread is ending, and its thread-locals are destroyed.
            Err(_) => self.react_elsewhere(event),
        }
    }

    /// Handles an event on the driver's thread.
    fn react_elsewhere(self: &Arc<Self>, event: Event) {
        let driver = self.clone();
        self.spawn(async move { driver.react(event) });
    }

    /// Handles one event. A panic in it is the engine's or our own: it leaves the driver in an unknown
    /// state, and ends it, whichever thread this is.
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

/// Handles the events that the first one has caused, directly or indirectly.
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
