//! Times as people write them.

use std::time::Duration;

use tenure::Lease;

use crate::words::for_people;

/// A time such as `10s`, `500ms`, `2m`, `1h`; a bare number counts seconds.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time: write it like 500ms, 10s, 2m or 1h");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "s" | "" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

#[expect(clippy::disallowed_methods, reason = "between two looks, or until patience is over")]
pub(crate) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// A time for which something can be kept.
pub(crate) fn period(text: &str) -> Result<Duration, String> {
    within(text, Lease::MIN.duration(), Lease::MAX.duration())
}

/// How often something can be looked at without being a burden to all.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    within(text, Duration::from_millis(10), Duration::MAX)
}

fn within(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    match time(text)? {
        time if time < least => Err(format!("it must be {least:?} at least")),
        time if time > most => Err(format!("it must be {} at most", for_people(most))),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_people_write_them() {
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(time("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(time("1h"), Ok(Duration::from_secs(3600)));
        for bad in ["", "s", "10 s", "10x", "-1s", "1e3s", "."] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
