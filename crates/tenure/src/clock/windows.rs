//! The clocks of Windows.
//!
//! `Instant` reads the performance counter (`QueryPerformanceCounter`), which Microsoft documents as including the
//! time in standby and hibernation ("Acquiring high-resolution time stamps"). Rust does not promise which counter
//! `Instant` reads; rust-lang/rust#79462 has the state.
#![expect(clippy::disallowed_methods, reason = "part of the module that reads the clock")]

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use crate::core::moment::Moment;

/// When the clock was first read: an `Instant` has no start of its own.
static START: OnceLock<Instant> = OnceLock::new();

/// The steady clock.
pub(crate) fn now() -> Moment {
    moment(START.get_or_init(Instant::now).elapsed())
}

/// The calendar.
pub(super) fn wall() -> Moment {
    // A calendar before 1970 counts as 1970: fences then count up from the last one.
    moment(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

fn moment(time: Duration) -> Moment {
    Moment::ZERO + time
}
