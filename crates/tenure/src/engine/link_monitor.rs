//! Monitors the connections of an engine.

use std::sync::Mutex;

use super::LinkHealth;
use crate::error::StoreError;
use crate::sync::lock;
use crate::telemetry;

/// Monitors one connection, and reports when it goes up or down.
pub(crate) struct LinkMonitor {
    link: &'static str,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    is_up: bool,
    epoch: u64,
    error: Option<StoreError>,
    is_over: bool,
}

impl LinkMonitor {
    pub(crate) fn new(link: &'static str) -> Self {
        Self { link, now: Mutex::default() }
    }

    /// The connection is up. Returns how many times it has been made.
    pub(crate) fn up(&self) -> u64 {
        let epoch = {
            let mut now = lock(&self.now);
            now.epoch += 1;
            (now.is_up, now.error) = (true, None);
            now.epoch
        };
        // After unlocking: a subscriber may ask for the health.
        telemetry::connected(self.link, epoch);
        epoch
    }

    /// The connection is down, or could not be made. Returns whether it was up, or has not been tried before.
    pub(crate) fn down(&self, error: StoreError) -> bool {
        let is_news = {
            let mut now = lock(&self.now);
            // An attempt that fails repeatedly is reported once.
            let is_news = (now.is_up || now.error.is_none()) && !now.is_over;
            (now.is_up, now.error) = (false, Some(error.clone()));
            is_news
        };
        if is_news {
            telemetry::disconnected(self.link, &error);
        }
        is_news
    }

    /// The client is being closed: connections that end from now on are not reported.
    pub(crate) fn end(&self) {
        lock(&self.now).is_over = true;
    }

    pub(crate) fn is_up(&self) -> bool {
        lock(&self.now).is_up
    }

    pub(crate) fn health(&self) -> LinkHealth {
        let now = lock(&self.now);
        let error = now.error.as_ref().map(StoreError::to_string);
        LinkHealth { node: None, link: self.link, is_up: now.is_up, epoch: now.epoch, error }
    }
}
