//! How far away a server is: the fastest round trip that a connection has seen.
//!
//! The fastest, because it has waited for nobody: what takes longer stood behind other work, in the server or
//! here. So it tells a server that is far away from one that is busy. On the way to one that is far away there
//! is room for many calls; a busy one is served best by few, with much in each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// So much of a round trip is worth a call of its own, in microseconds. So whatever the distance is, calls of
/// one kind follow one another at about this pace at most.
const WORTH_A_CALL: u64 = 75;

/// How many calls of one kind are in flight at most, however far away the server is.
const MOST_CALLS: u64 = 1024;

/// The fastest round trip on a connection.
pub(super) struct Trip(AtomicU64);

impl Default for Trip {
    fn default() -> Self {
        Self(AtomicU64::new(UNKNOWN))
    }
}

const UNKNOWN: u64 = u64::MAX;

impl Trip {
    /// A new connection, which may lead elsewhere.
    pub(super) fn begin(&self) {
        self.0.store(UNKNOWN, Ordering::Relaxed);
    }

    /// A reply came after so long. For the one thread that receives.
    pub(super) fn note(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(UNKNOWN);
        if micros < self.0.load(Ordering::Relaxed) {
            self.0.store(micros, Ordering::Relaxed);
        }
    }

    /// How many calls of one kind may be in flight: one, where a reply comes as soon as another call
    /// could be sent.
    pub(super) fn calls(&self) -> usize {
        match self.0.load(Ordering::Relaxed) {
            UNKNOWN => 1,
            micros => (micros / WORTH_A_CALL).clamp(1, MOST_CALLS) as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_farther_a_server_the_more_calls_are_in_flight() {
        let trip = Trip::default();
        assert_eq!(trip.calls(), 1, "nothing is known");
        trip.note(Duration::from_millis(80));
        assert_eq!(trip.calls(), 1024);
        trip.note(Duration::from_micros(1_100));
        assert_eq!(trip.calls(), 14);
        trip.note(Duration::from_millis(5));
        assert_eq!(trip.calls(), 14, "that one has waited");
        trip.note(Duration::from_micros(50));
        assert_eq!(trip.calls(), 1);
        trip.begin();
        assert_eq!(trip.calls(), 1);
    }
}
