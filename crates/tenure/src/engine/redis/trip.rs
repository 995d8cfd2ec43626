//! The distance to a server: the fastest round trip that a connection has measured.
//!
//! The fastest, because it did not queue: slower ones have queued behind other work, in the server or in this client.
//! So it distinguishes a distant server from a busy one. A distant server needs many calls in flight; a busy one
//! performs best with few large ones. So does one that answers much later than the fastest round trip: the network is
//! congested, and more calls would only queue.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One call may be in flight for each so many microseconds of a round trip. So whatever the distance, calls of
/// one kind are sent at about this interval at least.
const INTERVAL: u64 = 75;

/// How many calls of one kind are in flight at most, however far away the server is.
const MOST_CALLS: u64 = 1024;

/// The timeout for an answer, however near the server is: far longer than an answer should take, and well below a
/// third of the default lease.
pub(super) const RESPONSE_TIME: Duration = Duration::from_secs(2);

/// The timeout in round trips, for a distant server. Few, because a new connection on a busy machine has not measured a
/// fast one yet.
const TRIPS: u32 = 8;

/// The longest timeout for an answer, however far away the server is.
const LONGEST_RESPONSE_TIME: Duration = Duration::from_secs(6);

/// In microseconds: an answer that takes longer than this, and than four times the fastest round trip, is a sign of
/// congestion.
const LATE: u64 = 250_000;

/// The round trips of a connection, in microseconds.
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
    /// Starts again: a new connection may lead to another server.
    pub(super) fn begin(&self) {
        self.fastest.store(UNKNOWN, Ordering::Relaxed);
        self.last.store(0, Ordering::Relaxed);
    }

    /// Records a round trip. For one thread at a time.
    pub(super) fn note(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(UNKNOWN);
        self.last.store(micros, Ordering::Relaxed);
        if micros < self.fastest.load(Ordering::Relaxed) {
            self.fastest.store(micros, Ordering::Relaxed);
        }
    }

    /// The fastest round trip so far; zero if none was measured.
    pub(super) fn fastest(&self) -> Duration {
        match self.fastest.load(Ordering::Relaxed) {
            UNKNOWN => Duration::ZERO,
            micros => Duration::from_micros(micros),
        }
    }

    /// How long a server that owes a reply may be silent before the connection is closed.
    pub(super) fn response_time(&self) -> Duration {
        (self.fastest() * TRIPS).clamp(RESPONSE_TIME, LONGEST_RESPONSE_TIME)
    }

    /// How many calls of one kind may be in flight: one, if a reply arrives as soon as another call could be
    /// sent.
    pub(super) fn calls(&self) -> usize {
        let last = self.last.load(Ordering::Relaxed);
        match self.fastest.load(Ordering::Relaxed) {
            UNKNOWN => 1,
            fastest if last > LATE.max(fastest.saturating_mul(4)) => 1,
            fastest => (fastest / INTERVAL).clamp(1, MOST_CALLS) as usize,
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
        assert_eq!(trip.calls(), 14, "that one has queued");
        trip.note(Duration::from_millis(251));
        assert_eq!(trip.calls(), 1, "the network is congested");
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
