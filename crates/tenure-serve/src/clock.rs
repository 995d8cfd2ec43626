//! The calendar, for what is shown, and pauses between two polls.

use std::time::{Duration, SystemTime};

use crate::shape::millis;

/// The present time: milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    millis(now())
}

#[expect(clippy::disallowed_methods, reason = "shown as calendar time")]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

#[expect(clippy::disallowed_methods, reason = "between two polls, or two attempts")]
pub(crate) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// A time as RFC 3339 writes it, to the second.
pub(crate) fn rfc3339(at_ms: u64) -> String {
    let (seconds, days) = (at_ms / 1000 % 86_400, at_ms / 86_400_000);
    // Years that begin in March, so that the leap day is the last one; in eras of 400 years.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{of_month:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339_says() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_600, "2025-01-01T00:00:00Z"),
            (4_102_444_799, "2099-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(seconds * 1000), expected);
        }
    }
}
