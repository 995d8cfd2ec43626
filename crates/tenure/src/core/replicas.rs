//! How many replicas of a server must have a lock.

use std::time::Duration;

use crate::error::Invalid;

/// How many replicas of the server must have a lock, and how long they have time to confirm it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Replicas {
    count: u8,
    within_ms: u32,
}

impl Replicas {
    /// The maximum number of replicas.
    pub const MOST: u32 = 100;

    /// The longest time.
    pub const LONGEST: Duration = Duration::from_secs(60);

    /// Creates a checked value: 1 to 100 replicas, within 1 ms to 60 s.
    ///
    /// # Errors
    /// Returns a sentence that says what is allowed.
    pub fn new(count: u32, within: Duration) -> Result<Self, Invalid> {
        let allowed =
            u8::try_from(count).ok().filter(|count| (1..=Self::MOST as u8).contains(count));
        let Some(count) = allowed else {
            let sentence = format!("a lock can wait for 1 to {} replicas, not {count}", Self::MOST);
            return Err(Invalid::new(sentence));
        };
        if within < Duration::from_millis(1) || within > Self::LONGEST {
            let sentence = format!("replicas can be waited for 1 ms to 60 s, not {within:?}");
            return Err(Invalid::new(sentence));
        }
        // At most 60 s, which fits.
        Ok(Self { count, within_ms: within.as_millis() as u32 })
    }

    /// Returns how many replicas must have the lock.
    pub fn count(self) -> u32 {
        self.count.into()
    }

    /// Returns how long they have time.
    pub fn within(self) -> Duration {
        Duration::from_millis(self.within_ms.into())
    }

    /// The same replicas, with this time if it is shorter.
    pub(crate) fn at_most(self, time: Duration) -> Self {
        let within = self.within().min(time).max(Duration::from_millis(1));
        Self { within_ms: within.as_millis() as u32, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_numbers_and_times_are_refused() {
        let second = Duration::from_secs(1);
        for (count, within) in [(0, second), (101, second), (256, second), (257, second)] {
            let refused = Replicas::new(count, within).unwrap_err().to_string();
            assert_eq!(refused, format!("a lock can wait for 1 to 100 replicas, not {count}"));
        }
        for within in [Duration::ZERO, Duration::from_micros(999), Duration::from_millis(60_001)] {
            let refused = Replicas::new(1, within).unwrap_err().to_string();
            assert!(refused.contains("1 ms to 60 s"), "{refused}");
        }
        let most = Replicas::new(100, Replicas::LONGEST).unwrap();
        assert_eq!((most.count(), most.within()), (100, Replicas::LONGEST));
        assert_eq!(most.at_most(second).within(), second);
        assert_eq!(most.at_most(Duration::ZERO).within(), Duration::from_millis(1));
        assert_eq!(most.at_most(Duration::MAX), most);
    }
}
