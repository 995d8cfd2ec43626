//! Delivers wake-ups to the driver, from all connections of a client.

use std::sync::{Mutex, Weak};

use crate::engine::{Listener, Wakeup};
use crate::foreign;
use crate::sync::lock;

/// The receiver of a client's wake-ups, once it is known.
#[derive(Default)]
pub(super) struct Wakeups {
    listener: Mutex<Option<Weak<dyn Listener>>>,
}

impl Wakeups {
    pub(super) fn listen(&self, listener: Weak<dyn Listener>) {
        *lock(&self.listener) = Some(listener);
    }

    pub(super) fn wake(&self, wakeup: Wakeup) {
        let listener = lock(&self.listener).clone();
        if let Some(listener) = listener.and_then(|listener| listener.upgrade()) {
            // It wakes tasks of foreign executors.
            foreign::call(|| listener.wake(wakeup));
        }
    }
}
