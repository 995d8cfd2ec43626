//! One clock for all processes of a run: that of this machine, which no fault sets.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Microseconds since the machine started.
pub(crate) type Micros = u64;

/// Now.
pub(crate) fn now() -> Micros {
    let time = clock_gettime(ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000
}

/// A duration in microseconds.
pub(crate) fn micros(time: Duration) -> Micros {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Lets some time pass.
#[expect(clippy::disallowed_methods, reason = "faults last for a time")]
pub(crate) fn pass(time: Duration) {
    std::thread::sleep(time);
}
