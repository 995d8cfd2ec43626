//! How far away a server is: the fastest round trip that a connection has seen.
//!
//! The fastest, because it has waited for nobody: what takes longer stood behind other work, in the server or
//! here. So it tells a server that is far away from one that is busy. On the way to one that is far away there
//! is room for many calls; a busy one is served best by few, with much in each. So is one that answers much
//! later than it could: the way there is full, and more calls would only wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// So much of a round trip is worth a call of its own, in microseconds. So whatever the distance is, calls of
/// one kind follow one another at about this pace at most.
const WORTH_A_CALL: u64 = 75;

/// How many calls of one kind are in flight at most, however far away the server is.
const MOST_CALLS: u64 = 1024;

/// How long an answer takes at most, however near the server is: far longer than it should, and well below a
/// third of the default lease.
pub(super) const RESPONSE_TIME: Duration = Duration::from_secs(2);

/// So many round trips make up that time, where the server is farther away than that. Few, because a connection that
/// was made on a busy machine has seen no fast one yet.
const TRIPS: u32 = 8;

/// How long an answer takes at most, however far away the server is.
const LONGEST_RESPONSE_TIME: Duration = Duration::from_secs(6);

/// An answer that takes this long, and a few times the fastest trip, tells of a way that is full; in
/// microseconds.
const LATE: u64 = 250_000;

/// How long round trips on a connection take, in microseconds.
pub(super) struct Trip {
    fastest: AtomicU64,
    last: AtomicU64,
}

impl Default for Trip {
    fn default() -> Self {
        Self { fastest: AtomicU64::new(UNKNOWN), last: AtomicU64::new(0) }
    }
}

const UNKNOWN: u64 = u64::MAX;

impl Trip {
    /// A new connection, which may lead elsewhere.
    pub(super) fn begin(&self) {
        self.fastest.store(UNKNOWN, Ordering::Relaxed);
        self.last.store(0, Ordering::Relaxed);
    }

    /// A reply came after so long. For one thread at a time.
    pub(super) fn note(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(UNKNOWN);
        self.last.store(micros, Ordering::Relaxed);
        if micros < self.fastest.load(Ordering::Relaxed) {
            self.fastest.store(micros, Ordering::Relaxed);
        }
    }

    /// The fastest round trip so far; zero if there was none.
    pub(super) fn fastest(&self) -> Duration {
        match self.fastest.load(Ordering::Relaxed) {
            UNKNOWN => Duration::ZERO,
            micros => Duration::from_micros(micros),
        }
    }

    /// How long nothing may come from a server that was asked, before the connection is given up.
    pub(super) fn response_time(&self) -> Duration {
        (self.fastest() * TRIPS).clamp(RESPONSE_TIME, LONGEST_RESPONSE_TIME)
    }

    /// How many calls of one kind may be in flight: one, where a reply comes as soon as another call
    /// could be sent.
    pub(super) fn calls(&self) -> usize {
        let last = self.last.load(Ordering::Relaxed);
        match self.fastest.load(Ordering::Relaxed) {
            UNKNOWN => 1,
            fastest if last > LATE.max(fastest.saturating_mul(4)) => 1,
            fastest => (fastest / WORTH_A_CALL).clamp(1, MOST_CALLS) as usize,
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
        trip.note(Duration::from_millis(251));
        assert_eq!(trip.calls(), 1, "that one has waited for too long");
        trip.note(Duration::from_millis(2));
        assert_eq!(trip.calls(), 14);
        trip.note(Duration::from_micros(50));
        assert_eq!(trip.calls(), 1);
        trip.begin();
        assert_eq!(trip.calls(), 1);
    }

    #[test]
    fn the_time_for_an_answer_follows_the_distance_within_bounds() {
        let trip = Trip::default();
        assert_eq!(trip.response_time(), Duration::from_secs(2), "nothing is known");
        for (distance, time) in [(1_000, 6_000), (500, 4_000), (250, 2_000), (1, 2_000)] {
            trip.note(Duration::from_millis(distance));
            assert_eq!(trip.response_time(), Duration::from_millis(time));
        }
    }
}
