//! The clocks of a Unix system.

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::core::moment::Moment;

#[cfg(any(target_os = "linux", target_os = "android"))]
const STEADY: ClockId = ClockId::Boottime;

// Apple's monotonic clock counts suspend.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const STEADY: ClockId = ClockId::Monotonic;

/// The steady clock.
pub(crate) fn now() -> Moment {
    moment(clock_gettime(STEADY))
}

/// The calendar.
pub(super) fn wall() -> Moment {
    moment(clock_gettime(ClockId::Realtime))
}

fn moment(time: Timespec) -> Moment {
    // A calendar before 1970 counts as 1970: fences then count up from the last one.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_nsec).unwrap_or(0) / 1000;
    Moment::from_micros(seconds * 1_000_000 + micros)
}
