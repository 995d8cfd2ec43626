//! The lease of a grant, and its holder's deadline.
//!
//! Upholds I2: a holder's deadline counts from the moment its request was *sent*, so a slow
//! reply can only shorten it, and it is earlier than the store's by an allowance for drift.

use std::time::Duration;

use super::moment::Moment;
use crate::error::Invalid;

/// How long a lock is held without renewal: 10 ms to 24 h, in whole milliseconds.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure::Lease;
///
/// assert_eq!(Lease::new(Duration::from_secs(5))?.duration(), Duration::from_secs(5));
/// assert!(Lease::new(Duration::ZERO).is_err());
/// # Ok::<(), tenure::Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    millis: u32,
}

impl Lease {
    /// The shortest lease: below it, one delayed packet would lose the lock.
    pub const MIN: Self = Self { millis: 10 };

    /// The longest lease: a crashed holder blocks the lock for this long.
    pub const MAX: Self = Self { millis: 24 * 60 * 60 * 1000 };

    /// The default lease: 30 s, renewed every 10 s. Two renewals may fail before the lock is lost, and the
    /// lock of a crashed holder is free before an operator is paged. It is Redisson's default, too.
    pub const DEFAULT: Self = Self { millis: 30_000 };

    /// Checks a lease; fractions of a millisecond are truncated.
    ///
    /// # Errors
    /// Returns an error if it is shorter than [`Lease::MIN`] or longer than [`Lease::MAX`].
    pub fn new(duration: Duration) -> Result<Self, Invalid> {
        match u32::try_from(duration.as_millis()) {
            Ok(millis) if (Self::MIN.millis..=Self::MAX.millis).contains(&millis) => {
                Ok(Self { millis })
            }
            _ => Err(Invalid::new(format!("a lease must be 10 ms to 24 h, not {duration:?}"))),
        }
    }

    /// Returns the lease as a duration.
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.millis as u64)
    }

    /// The time between two renewals: a third, so that two may fail.
    pub(crate) const fn renew_every(self) -> Duration {
        Duration::from_micros(self.millis as u64 * 1000 / 3)
    }
}

impl Default for Lease {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl TryFrom<Duration> for Lease {
    type Error = Invalid;

    fn try_from(duration: Duration) -> Result<Self, Invalid> {
        Self::new(duration)
    }
}

/// The holder's deadline of a lease that was requested at `sent`.
pub(crate) fn deadline(sent: Moment, lease: Duration) -> Moment {
    (sent + lease).before(drift(lease))
}

/// The allowance for clock drift: 1 % and 2 ms, as in Redlock. It is also the time in which a loss can be
/// reported before the lease ends in the store (I9).
fn drift(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// One answer of the store to a waiter, which relates the store's clock to ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClockSync {
    /// When the request was sent, on our clock.
    pub(crate) sent: Moment,
    /// The store's clock when it answered.
    pub(crate) store: Moment,
}

impl ClockSync {
    /// The deadline of a hand-over that the store made at `granted`, by its clock, and whose wake-up was
    /// received at `received`, by ours; none if it must be confirmed by a renewal.
    ///
    /// If it was granted before the answer, or that would be after it was received, the store's clock has jumped and
    /// proves nothing.
    pub(crate) fn deadline(
        self,
        granted: Moment,
        lease: Duration,
        received: Moment,
    ) -> Option<Moment> {
        self.granted_at(granted, received).map(|at| deadline(at, lease))
    }

    /// When that hand-over was made by our clock, at the earliest: the answer was made no earlier than `sent`, so the
    /// grant was made no earlier than `sent` plus the store's time between the two.
    pub(crate) fn granted_at(self, granted: Moment, received: Moment) -> Option<Moment> {
        let at = self.sent + granted.since(self.store);
        (granted >= self.store && at <= received).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_micros(millis * 1000)
    }

    #[test]
    fn leases_outside_10_ms_to_24_h_are_refused_with_what_is_allowed() {
        for bad in [Duration::ZERO, Duration::from_millis(9), Duration::from_secs(100 * 86_400)] {
            let refused = Lease::new(bad).unwrap_err().to_string();
            assert!(refused.contains("10 ms to 24 h"), "{refused}");
        }
        assert!(Lease::new(Duration::from_secs(86_400)).is_ok());
    }

    /// I2: the holder's deadline lies before the store's, however late the reply.
    #[test]
    fn a_deadline_counts_from_the_sending_and_ends_before_the_stores() {
        let lease = Lease::DEFAULT.duration();
        let sent = at(1000);
        assert_eq!(deadline(sent, lease), at(1000 + 30_000 - 302));
    }

    #[test]
    fn the_deadline_of_a_hand_over_counts_from_the_last_answer() {
        let clock_sync = ClockSync { sent: at(50), store: at(900_000) };
        let lease = Duration::from_secs(10);
        // Granted 3 s after the answer by the store's clock; received a little later by ours.
        let computed = clock_sync.deadline(at(903_000), lease, at(3_060));
        assert_eq!(computed, Some(deadline(at(3_050), lease)));
    }

    #[test]
    fn a_grant_from_a_clock_that_jumped_must_be_confirmed() {
        let clock_sync = ClockSync { sent: at(50), store: at(900_000) };
        let lease = Duration::from_secs(10);
        assert_eq!(clock_sync.deadline(at(960_000), lease, at(3_060)), None, "jumped ahead");
        assert_eq!(clock_sync.deadline(at(899_000), lease, at(3_060)), None, "jumped back");
    }
}
