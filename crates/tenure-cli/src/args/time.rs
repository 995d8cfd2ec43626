//! Times as users write them.

use std::time::Duration;

use tenure::Lease;

use crate::view::format::in_sentence;

/// The units of time, from the longest to the shortest, in seconds.
const UNITS: [(&str, f64); 6] =
    [("w", 604_800.0), ("d", 86_400.0), ("h", 3_600.0), ("m", 60.0), ("s", 1.0), ("ms", 0.001)];

/// A time such as `10s`, `500ms`, `2m`, `1h30m` or `1d`; a bare number counts seconds.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time: write it like 500ms, 10s, 2m, 1h30m or 1d");
    let seconds = seconds(text.trim()).ok_or_else(wrong)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

fn seconds(text: &str) -> Option<f64> {
    let (mut rest, mut units, mut seconds) = (text, &UNITS[..], 0.0);
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, behind) = rest.split_at(end);
        let number: f64 = number.parse().ok()?;
        let behind = behind.trim_start();
        let end = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let unit = match &behind[..end] {
            "" if number_is_all(text) => "s",
            unit => unit,
        };
        // Each unit once, and longer ones first: anything else is a typing error.
        let place = units.iter().position(|(name, _)| *name == unit)?;
        seconds += number * units[place].1;
        (rest, units) = (behind[end..].trim_start(), &units[place + 1..]);
        if rest.is_empty() {
            return Some(seconds);
        }
    }
}

fn number_is_all(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_digit() || c == '.')
}

#[expect(clippy::disallowed_methods, reason = "between two polls, or until a time limit")]
pub(crate) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// A delay that ends within a day.
pub(crate) fn delay(text: &str) -> Result<Duration, String> {
    within(text, Duration::ZERO, Lease::MAX.duration())
}

/// A lease.
pub(crate) fn period(text: &str) -> Result<Duration, String> {
    within(text, Lease::MIN.duration(), Lease::MAX.duration())
}

/// The time of a success record: up to a year.
pub(crate) fn record_time(text: &str) -> Result<Duration, String> {
    within(text, Lease::MIN.duration(), Duration::from_secs(365 * 24 * 3600))
}

/// A polling interval that does not overload the store.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    within(text, Duration::from_millis(10), Duration::MAX)
}

fn within(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    match time(text)? {
        time if time < least => Err(format!("it must be {} at least", in_sentence(least))),
        time if time > most => Err(format!("it must be {} at most", in_sentence(most))),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::format::for_people;

    #[test]
    fn times_are_written_as_people_write_them() {
        for (text, millis) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("10 s", 10_000),
            ("3", 3_000),
            ("1.5", 1_500),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("1m30s", 90_000),
            ("1s500ms", 1_500),
            ("1d", 86_400_000),
            ("1d12h", 129_600_000),
            ("2w", 1_209_600_000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "s", "10x", "-1s", "1e3s", ".", "30m1h", "1h1h", "1h30", "1 2", "1 2s"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }

    /// Every printed time is a valid argument.
    #[test]
    fn a_time_that_is_printed_is_understood() {
        let millis = [0, 1, 250, 1_500, 3_000, 42_000, 75_000, 90_500, 5_400_000, 90_000_000];
        for millis in millis.into_iter().chain([172_800_000, 190_000_000, 1_209_600_000]) {
            let it = Duration::from_millis(millis);
            assert_eq!(time(&in_sentence(it)), Ok(it), "{}", in_sentence(it));
            let near = time(&for_people(it)).unwrap();
            let off = near.abs_diff(it);
            assert!(off <= Duration::from_millis(50) || off * 12 < it, "{} {it:?}", for_people(it));
        }
    }
}
