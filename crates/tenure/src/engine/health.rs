//! How an engine's connections are.

use std::sync::Mutex;

use crate::error::Trouble;
use crate::sync::lock;
use crate::telemetry;

/// How an engine's connections are. Locks go on while one is down, for as long as their leases
/// allow; new ones are refused or wait.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Health {
    /// Each connection; none where an engine needs none.
    pub links: Vec<LinkHealth>,
}

impl Health {
    /// Whether every connection is up.
    pub fn is_well(&self) -> bool {
        self.links.iter().all(|link| link.is_up)
    }
}

/// How one connection is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkHealth {
    /// What it is for.
    pub link: &'static str,
    /// Whether it is up.
    pub is_up: bool,
    /// How many times it has been made: above one, it was lost in between.
    pub epoch: u64,
    /// What went wrong last, and is not mended.
    pub trouble: Option<String>,
}

/// Follows one connection, and tells of its ups and downs.
#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only servers have connections"))]
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

#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only servers have connections"))]
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
