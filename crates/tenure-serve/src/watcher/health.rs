//! The health of the store: round trip, connections, doctor's findings, and its servers.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::Error;
use tenure::engine::{Finding, NodeInfo, Topology};
use tokio::time::Instant;

use super::Reading;
use crate::clock::now_ms;
use crate::shape;

/// How often the store is examined as `tenure doctor` does, and how often its servers are asked.
const EXAMINE: Duration = Duration::from_secs(60);
const LOCATE: Duration = Duration::from_secs(5);

/// How many round trips are shown.
const TRIPS: usize = 60;

#[derive(Default)]
pub(super) struct Health {
    /// None until the store was asked.
    is_up: Option<bool>,
    error: Option<String>,
    /// Since when it is up, or down.
    since_ms: u64,
    trips: VecDeque<u64>,
    read_ms: u64,
    findings: Vec<Value>,
    topology: Option<Topology>,
    examined: Option<Instant>,
    located: Option<Instant>,
}

/// What is to be asked again.
pub(super) struct Due {
    pub(super) findings: bool,
    pub(super) topology: bool,
}

impl Health {
    pub(super) fn succeeded(&mut self, reading: &Reading) {
        self.turn(true);
        self.error = None;
        self.read_ms = shape::whole_millis(reading.took);
        self.trips.push_back(u64::try_from(reading.trip.as_micros()).unwrap_or(u64::MAX));
        if self.trips.len() > TRIPS {
            self.trips.pop_front();
        }
    }

    pub(super) fn failed(&mut self, why: &str) {
        self.turn(false);
        self.error = Some(why.to_owned());
        // After an outage, both may be different.
        (self.examined, self.located) = (None, None);
    }

    fn turn(&mut self, is_up: bool) {
        if self.is_up != Some(is_up) {
            self.since_ms = now_ms();
            self.is_up = Some(is_up);
        }
    }

    /// What is to be asked again; without viewers, nothing.
    pub(super) fn due(&self, is_watched: bool) -> Due {
        let is_due = |at: Option<Instant>, every| at.is_none_or(|at| at.elapsed() >= every);
        Due {
            findings: is_watched && is_due(self.examined, EXAMINE),
            topology: is_watched && is_due(self.located, LOCATE),
        }
    }

    pub(super) fn found(&mut self, findings: Result<Vec<Finding>, Error>) {
        self.examined = Some(Instant::now());
        if let Ok(findings) = findings {
            self.findings = findings.iter().map(shape::finding).collect();
        }
    }

    pub(super) fn located(&mut self, topology: Option<Topology>) {
        self.located = Some(Instant::now());
        self.topology = topology.or(self.topology.take());
    }

    /// What every change has.
    pub(super) fn pulse(&self) -> Value {
        json!({
            "up": self.is_up,
            "error": self.error,
            "since_ms": self.since_ms,
            "round_trip_us": self.trips.back(),
            "read_ms": self.read_ms,
        })
    }

    pub(super) fn to_json(&self) -> Value {
        let mut whole = self.pulse();
        whole["round_trips_us"] = json!(self.trips);
        whole["findings"] = json!(self.findings);
        whole["topology"] = self.topology.as_ref().map(topology).into();
        whole
    }
}

fn topology(topology: &Topology) -> Value {
    json!({ "form": topology.form, "nodes": topology.nodes.iter().map(node).collect::<Vec<_>>() })
}

fn node(node: &NodeInfo) -> Value {
    json!({
        "name": node.name,
        "role": node.role,
        "of": node.of,
        "up": node.is_up,
        "error": node.error,
        "version": node.version,
        "memory": node.memory,
        "memory_limit": node.memory_limit,
        "slots": node.slots,
    })
}
