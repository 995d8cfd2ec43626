//! Follows the connections of an engine that has any.

use std::sync::Mutex;

use super::LinkHealth;
use crate::error::StoreError;
use crate::sync::lock;
use crate::telemetry;

/// Follows one connection, and tells of its ups and downs.
pub(crate) struct LinkMonitor {
    link: &'static str,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    is_up: bool,
    epoch: u64,
    trouble: Option<StoreError>,
    is_over: bool,
}

impl LinkMonitor {
    pub(crate) fn new(link: &'static str) -> Self {
        Self { link, now: Mutex::default() }
    }

    /// It is up; how many times it has been so.
    pub(crate) fn up(&self) -> u64 {
        let epoch = {
            let mut now = lock(&self.now);
            now.epoch += 1;
            (now.is_up, now.trouble) = (true, None);
            now.epoch
        };
        // Unlocked: whoever hears of it may ask for the health.
        telemetry::connected(self.link, epoch);
        epoch
    }

    pub(crate) fn down(&self, trouble: StoreError) {
        let is_news = {
            let mut now = lock(&self.now);
            // An attempt that fails again and again is told once.
            let is_news = (now.is_up || now.trouble.is_none()) && !now.is_over;
            (now.is_up, now.trouble) = (false, Some(trouble.clone()));
            is_news
        };
        if is_news {
            telemetry::disconnected(self.link, &trouble);
        }
    }

    /// The client is being closed: what ends from now on is no news.
    pub(crate) fn end(&self) {
        lock(&self.now).is_over = true;
    }

    pub(crate) fn health(&self) -> LinkHealth {
        let now = lock(&self.now);
        let trouble = now.trouble.as_ref().map(StoreError::to_string);
        LinkHealth { link: self.link, is_up: now.is_up, epoch: now.epoch, trouble }
    }
}
