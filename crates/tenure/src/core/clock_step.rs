//! Detects steps of the store's clock.
//!
//! Leases end by the store's clock (A2), so a clock that is set forward ends them early, and one that
//! is set back keeps the lock of a crashed holder for longer. This is not prevented; it is detected with
//! the next answer that carries the store's time, and reported.

use std::time::Duration;

use super::moment::Moment;

/// Compares the store's clock with ours, answer by answer.
#[derive(Debug, Default)]
pub(crate) struct ClockWatch {
    last: Option<Seen>,
    /// How far it was set forward at most.
    most_forward: Duration,
}

/// The bounds from the answers since the last step: how far the store's clock is ahead of ours. The time within a round
/// trip is unknown, so a slow answer narrows them less than a fast one, and must not widen them: a step could hide in it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    received: Moment,
    least: i128,
    most: i128,
}

/// The store's clock was set, by at least this much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockStep {
    Forward(Duration),
    Back(Duration),
}

impl ClockWatch {
    /// Notes an answer that was sent for and received at these moments of our clock, and made at `store` by
    /// the store's. Returns the step of the store's clock since the last answer, if there was one.
    pub(crate) fn note(
        &mut self,
        sent: Moment,
        received: Moment,
        store: Moment,
    ) -> Option<ClockStep> {
        let ahead_of = |ours: Moment| i128::from(store.as_micros()) - i128::from(ours.as_micros());
        let seen = Seen { received, least: ahead_of(received), most: ahead_of(sent) };
        let last = self.last.replace(seen)?;
        let drift = micros(allowance(received.since(last.received)));
        let (least, most) = (last.least - drift, last.most + drift);
        let step = if seen.least > most {
            self.most_forward = duration(seen.most - last.least);
            ClockStep::Forward(duration(seen.least - last.most))
        } else if seen.most < least {
            ClockStep::Back(duration(last.least - seen.most))
        } else {
            let (least, most) = (seen.least.max(least), seen.most.min(most));
            self.last = Some(Seen { received, least, most });
            return None;
        };
        Some(step)
    }

    /// How far the last step forward may have been.
    pub(crate) fn most_forward(&self) -> Duration {
        self.most_forward
    }
}

/// How far two clocks may drift apart in this time without a step (A1).
fn allowance(elapsed: Duration) -> Duration {
    elapsed / 100 + Duration::from_millis(2)
}

fn micros(duration: Duration) -> i128 {
    i128::try_from(duration.as_micros()).unwrap_or(i128::MAX)
}

fn duration(micros: i128) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: u64 = 1_794_768_132_000_000;

    fn at(millis: u64) -> Moment {
        Moment::from_micros(millis * 1000)
    }

    /// Notes an answer that took `trip` ms, made half-way, by a store that is `ahead` ms ahead of where
    /// it began.
    fn note(watch: &mut ClockWatch, sent: u64, trip: u64, ahead: i64) -> Option<ClockStep> {
        let made = sent + trip / 2;
        let store = (STORE + made * 1000).saturating_add_signed(ahead * 1000);
        watch.note(at(sent), at(sent + trip), Moment::from_micros(store))
    }

    #[test]
    fn a_clock_that_runs_as_ours_does_was_not_set() {
        let mut watch = ClockWatch::default();
        for (sent, trip) in [(0, 1), (10_000, 1), (20_000, 900), (30_000, 1), (90_000, 1_500)] {
            assert_eq!(note(&mut watch, sent, trip, 0), None, "at {sent}");
        }
    }

    #[test]
    fn a_slow_trip_is_not_taken_for_a_step() {
        let mut watch = ClockWatch::default();
        note(&mut watch, 0, 1, 0);
        // The answer was made at once, and took two seconds back; then the other way round.
        let made = |ours: u64| Moment::from_micros(STORE + ours * 1000);
        assert_eq!(watch.note(at(10_000), at(12_000), made(10_000)), None);
        assert_eq!(watch.note(at(20_000), at(22_000), made(22_000)), None);
    }

    /// One answer of two seconds must not hide a step of one.
    #[test]
    fn a_step_does_not_hide_in_a_slow_answer() {
        let mut watch = ClockWatch::default();
        note(&mut watch, 0, 1, 0);
        assert_eq!(note(&mut watch, 1_000, 2_000, 500), None, "within the round trip");
        let step = note(&mut watch, 3_500, 1, 1_000);
        assert!(matches!(step, Some(ClockStep::Forward(_))), "{step:?}");
        let most = watch.most_forward();
        assert!(most >= Duration::from_secs(1) && most < Duration::from_millis(1_100), "{most:?}");
    }

    #[test]
    fn drift_within_the_allowance_is_not_a_step() {
        let mut watch = ClockWatch::default();
        note(&mut watch, 0, 1, 0);
        assert_eq!(note(&mut watch, 10_000, 1, 90), None);
        assert_eq!(note(&mut watch, 20_000, 1, 0), None);
    }

    #[test]
    fn a_clock_that_was_set_is_noticed_once() {
        let mut watch = ClockWatch::default();
        note(&mut watch, 0, 2, 0);
        let forward = note(&mut watch, 10_000, 2, 31_000);
        let Some(ClockStep::Forward(by)) = forward else { panic!("{forward:?}") };
        assert!(by > Duration::from_secs(30) && by <= Duration::from_secs(31), "{by:?}");
        assert_eq!(note(&mut watch, 20_000, 2, 31_000), None);
        let back = note(&mut watch, 30_000, 2, -3_569_000);
        let Some(ClockStep::Back(by)) = back else { panic!("{back:?}") };
        assert!(by > Duration::from_secs(3_599) && by <= Duration::from_secs(3_600), "{by:?}");
    }
}
