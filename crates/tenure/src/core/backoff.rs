//! Backoff: how long to wait before the next attempt.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A retry strategy: how long to wait before attempt 2, 3, 4…
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure::Backoff;
///
/// let patient = Backoff::exponential(Duration::from_millis(10), Duration::from_secs(1));
/// let own = Backoff::custom(|attempt| Duration::from_millis(5 * u64::from(attempt)));
/// ```
#[derive(Clone, Debug)]
pub struct Backoff(Strategy);

#[derive(Clone)]
enum Strategy {
    Fixed(Duration),
    Exponential { first: Duration, most: Duration },
    Jitter { first: Duration, most: Duration },
    Custom(Arc<dyn Fn(u32) -> Duration + Send + Sync>),
}

impl Backoff {
    /// Always waits for the same delay.
    pub const fn fixed(delay: Duration) -> Self {
        Self(Strategy::Fixed(delay))
    }

    /// Doubles from `first` up to `most`.
    pub const fn exponential(first: Duration, most: Duration) -> Self {
        Self(Strategy::Exponential { first, most })
    }

    /// Decorrelated jitter: a random delay between `first` and three times the previous one, at most `most`.
    /// It avoids a thundering herd of clients that failed together.
    pub const fn jitter(first: Duration, most: Duration) -> Self {
        Self(Strategy::Jitter { first, most })
    }

    /// Calls `delay` with the number of the attempt that just failed (1, 2, 3…).
    pub fn custom(delay: impl Fn(u32) -> Duration + Send + Sync + 'static) -> Self {
        Self(Strategy::Custom(Arc::new(delay)))
    }

    /// A new sequence of delays; `seed` determines the random ones.
    pub(crate) fn delays(&self, seed: u64) -> Delays {
        Delays { strategy: self.0.clone(), attempt: 0, last: Duration::ZERO, random: seed }
    }
}

impl Default for Backoff {
    /// Jitter from 20 ms to 1 s: fast enough for interactive use, and 100 clients make at most a few
    /// hundred attempts per second.
    fn default() -> Self {
        Self::jitter(Duration::from_millis(20), Duration::from_secs(1))
    }
}

impl fmt::Debug for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(delay) => write!(f, "fixed {delay:?}"),
            Self::Exponential { first, most } => write!(f, "exponential {first:?} to {most:?}"),
            Self::Jitter { first, most } => write!(f, "jitter {first:?} to {most:?}"),
            Self::Custom(_) => f.write_str("custom"),
        }
    }
}

/// The delays of one sequence of attempts.
#[derive(Debug)]
pub(crate) struct Delays {
    strategy: Strategy,
    attempt: u32,
    last: Duration,
    random: u64,
}

impl Delays {
    /// How long to wait after the attempt that just failed.
    pub(crate) fn next(&mut self) -> Duration {
        self.attempt = self.attempt.saturating_add(1);
        self.last = match &self.strategy {
            Strategy::Fixed(delay) => *delay,
            Strategy::Exponential { first, most } => {
                let doubled = 1u32.checked_shl(self.attempt - 1).unwrap_or(u32::MAX);
                first.saturating_mul(doubled).min(*most)
            }
            Strategy::Jitter { first, most } => {
                let (first, most) = (*first, *most);
                let upper = self.last.saturating_mul(3).clamp(first, most.max(first));
                let part = self.fraction();
                first.saturating_add((upper - first).mul_f64(part)).min(most)
            }
            Strategy::Custom(delay) => delay(self.attempt),
        };
        self.last
    }

    /// How many attempts have failed so far.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempt
    }

    /// A number from 0 to 1, by SplitMix64, which is good enough for jitter.
    fn fraction(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn first(backoff: &Backoff, count: usize) -> Vec<Duration> {
        let mut delays = backoff.delays(7);
        (0..count).map(|_| delays.next()).collect()
    }

    #[test]
    fn fixed_never_changes() {
        assert_eq!(first(&Backoff::fixed(ms(5)), 3), [ms(5); 3]);
    }

    #[test]
    fn exponential_doubles_up_to_its_most_and_never_overflows() {
        let backoff = Backoff::exponential(ms(10), ms(50));
        assert_eq!(first(&backoff, 4), [ms(10), ms(20), ms(40), ms(50)]);
        assert_eq!(first(&backoff, 100)[99], ms(50));
    }

    #[test]
    fn custom_gets_the_attempt() {
        let backoff = Backoff::custom(|attempt| ms(u64::from(attempt)));
        assert_eq!(first(&backoff, 3), [ms(1), ms(2), ms(3)]);
    }

    proptest! {
        #[test]
        fn jitter_stays_between_first_and_most(seed: u64, low in 1u64..50, span in 0u64..500) {
            let backoff = Backoff::jitter(ms(low), ms(low + span));
            let mut delays = backoff.delays(seed);
            let mut last = Duration::ZERO;
            for _ in 0..50 {
                let delay = delays.next();
                prop_assert!(delay >= ms(low) && delay <= ms(low + span));
                prop_assert!(delay <= ms(low).max(last * 3));
                last = delay;
            }
        }
    }

    #[test]
    fn jitter_spreads_clients_that_failed_together() {
        let backoff = Backoff::jitter(ms(10), ms(1000));
        let fifth: std::collections::HashSet<_> = (0..50)
            .map(|seed| {
                let mut delays = backoff.delays(seed);
                (0..5).map(|_| delays.next()).last()
            })
            .collect();
        assert!(fifth.len() > 45, "only {} different delays", fifth.len());
    }
}
