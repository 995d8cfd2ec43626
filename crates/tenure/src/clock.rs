//! The only module that reads the clock.
//!
//! Leases are measured on a clock that also counts the time a machine is suspended (I2): a
//! laptop that was suspended past its lease must know that it lost the lock.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

use crate::core::moment::{Moment, Now};

/// The steady clock.
pub(crate) fn now() -> Moment {
    #[cfg(all(test, feature = "redis", unix))]
    if let Some(now) = crate::simulation::now() {
        return now;
    }
    system::now()
}

/// Both clocks, for a store in this process.
pub(crate) fn both() -> Now {
    #[cfg(all(test, feature = "redis", unix))]
    if let Some(wall) = crate::simulation::wall() {
        return Now { clock: now(), wall };
    }
    Now { clock: now(), wall: system::wall() }
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
