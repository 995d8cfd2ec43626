//! Follows the connections of an engine that has any.

use std::sync::Mutex;

use super::LinkHealth;
use crate::error::Trouble;
use crate::sync::lock;
use crate::telemetry;

/// Follows one connection, and tells of its ups and downs.
pub(crate) struct Pulse {
    link: &'static str,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    is_up: bool,
    epoch: u64,
    trouble: Option<Trouble>,
}

impl Pulse {
    pub(crate) fn new(link: &'static str) -> Self {
        Self { link, now: Mutex::default() }
    }

    pub(crate) fn up(&self) {
        let mut now = lock(&self.now);
        *now = Now { is_up: true, epoch: now.epoch + 1, trouble: None };
        telemetry::connected(self.link, now.epoch);
    }

    pub(crate) fn down(&self, trouble: Trouble) {
        let mut now = lock(&self.now);
        // An attempt that fails again and again is told once.
        if now.is_up || now.trouble.is_none() {
            telemetry::disconnected(self.link, &trouble);
        }
        (now.is_up, now.trouble) = (false, Some(trouble));
    }

    pub(crate) fn health(&self) -> LinkHealth {
        let now = lock(&self.now);
        let trouble = now.trouble.as_ref().map(Trouble::to_string);
        LinkHealth { link: self.link, is_up: now.is_up, epoch: now.epoch, trouble }
    }
}
