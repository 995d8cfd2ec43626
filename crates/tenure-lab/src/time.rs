//! The clock that all processes of an experiment share, and pauses.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Microseconds since the machine was started: the same in all processes.
pub(crate) fn now() -> u64 {
    let now = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

/// Lets time pass: work under a lock takes time, and the historic locks poll.
#[expect(clippy::disallowed_methods, reason = "experiments are about time that passes")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

pub(crate) const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}
