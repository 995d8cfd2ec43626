//! The only file that reads the clock.
//!
//! Leases are measured on a clock that also counts the time a machine is suspended (I2): a
//! laptop that was suspended past its lease must know that it lost the lock.

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::core::moment::{Moment, Now};

#[cfg(any(target_os = "linux", target_os = "android"))]
const STEADY: ClockId = ClockId::Boottime;

// Apple's monotonic clock counts suspend.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const STEADY: ClockId = ClockId::Monotonic;

/// The steady clock.
pub(crate) fn now() -> Moment {
    moment(clock_gettime(STEADY))
}

/// Both clocks, for a store in this process.
pub(crate) fn both() -> Now {
    Now { clock: now(), wall: moment(clock_gettime(ClockId::Realtime)) }
}

fn moment(time: Timespec) -> Moment {
    // A calendar before 1970 counts as 1970: fences then count up from the last one.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_nsec).unwrap_or(0) / 1000;
    Moment::from_micros(seconds * 1_000_000 + micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R19: the kernel's boot clock is the one that counts suspend.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_steady_clock_is_the_one_that_counts_suspend() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let difference = now().as_micros() as f64 / 1e6 - seconds;
        assert!(difference.abs() < 1.0, "{difference} s from the boot clock");
    }

    #[test]
    fn time_goes_forward() {
        let (first, second) = (both(), both());
        assert!(second.clock >= first.clock);
        assert!(first.wall.as_micros() > 1_700_000_000_000_000, "the calendar is set");
    }
}
