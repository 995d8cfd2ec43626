//! What has happened to the locks in the last minutes, as far as readings show it.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};
use tenure::ForceRecord;

use super::difference::{Difference, Hold};
use crate::clock::now_ms;
use crate::shape::{self, millis};

/// How long events are kept, and how many.
const KEPT_MS: u64 = 15 * 60 * 1000;
const MOST: usize = 20_000;

/// How many events of one lock are shown.
const SHOWN: usize = 200;

/// How many events a server can number in a millisecond without reaching the numbers of one that starts later. A browser reads
/// numbers up to 2⁵³ exactly, which these do for two centuries.
const PER_MS: u64 = 1000;

/// The last events.
pub(super) struct History {
    events: VecDeque<Arc<Happened>>,
    newest: u64,
}

impl Default for History {
    /// Numbers continue after those of an earlier process: a client that knows an event of that one has got none of these.
    fn default() -> Self {
        Self { events: VecDeque::new(), newest: now_ms().saturating_mul(PER_MS) }
    }
}

/// Something that happened to a lock.
pub(super) struct Happened {
    pub(super) id: u64,
    at_ms: u64,
    pub(super) name: String,
    pub(super) data: Value,
}

impl History {
    /// Adds what a difference shows, and returns it.
    pub(super) fn add(
        &mut self,
        difference: &Difference,
        forced: &[ForceRecord],
        at_ms: u64,
    ) -> Vec<Arc<Happened>> {
        let left = difference.left.iter().map(|hold| self::left(hold, forced, at_ms));
        let came = difference.came.iter().map(|hold| came(hold, at_ms));
        let new: Vec<_> = left.chain(came).collect();
        let new = new.into_iter().map(|(at_ms, name, data)| self.push(at_ms, name, data));
        let new = new.collect();
        let is_old = |event: &Happened| event.at_ms + KEPT_MS < at_ms;
        while self.events.len() > MOST || self.events.front().is_some_and(|it| is_old(it)) {
            self.events.pop_front();
        }
        new
    }

    fn push(&mut self, at_ms: u64, name: String, mut data: Value) -> Arc<Happened> {
        self.newest += 1;
        data["id"] = self.newest.into();
        let event = Arc::new(Happened { id: self.newest, at_ms, name, data });
        self.events.push_back(event.clone());
        event
    }

    /// The last events of a lock, the oldest first.
    pub(super) fn of(&self, name: &str) -> Vec<Value> {
        let own = self.events.iter().rev().filter(|event| event.name == name).take(SHOWN);
        let mut own: Vec<_> = own.map(|event| event.data.clone()).collect();
        own.reverse();
        own
    }

    /// The number of the newest event.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// The first events after one that a client has got, as far as they are kept.
    pub(super) fn after(&self, id: u64, most: usize) -> Vec<Arc<Happened>> {
        let first = self.events.partition_point(|event| event.id <= id);
        self.events.range(first..).take(most).cloned().collect()
    }
}

fn came(hold: &Hold, at_ms: u64) -> (u64, String, Value) {
    let since = shape::known(hold.holder.since).map_or(at_ms, millis);
    let event = if hold.was_waited_for { "handed-over" } else { "acquired" };
    (since, hold.name.as_str().to_owned(), object(event, hold, since))
}

fn left(hold: &Hold, forced: &[ForceRecord], at_ms: u64) -> (u64, String, Value) {
    let record = forced.iter().find(|record| {
        record.name == hold.name
            && record.owners.contains(&hold.holder.owner)
            && record.at >= hold.holder.since
    });
    let (event, at_ms) = match record {
        Some(record) => ("forced", millis(record.at)),
        None if hold.is_over => ("lease-ended", hold.until_ms),
        None => ("released", at_ms),
    };
    let mut data = object(event, hold, at_ms);
    if let Some(record) = record {
        data["reason"] = (&*record.reason).into();
        data["by"] = shape::client(&record.by);
    }
    (at_ms, hold.name.as_str().to_owned(), data)
}

fn object(event: &str, hold: &Hold, at_ms: u64) -> Value {
    json!({
        "at_ms": at_ms,
        "event": event,
        "name": hold.name.as_str(),
        "owner": hold.holder.owner.to_string(),
        "about": shape::client(&hold.holder.about),
        "fence": shape::fence(hold.holder.fence),
        "since_ms": shape::known(hold.holder.since).map(millis),
    })
}
