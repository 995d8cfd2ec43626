//! How values are printed. Foreign names and notes are hostile text, and are escaped.

use std::fmt::Display;
use std::time::{Duration, SystemTime};

use tenure::{About, Guard, HolderInfo, LockInfo};
use tenure_serve::shape::{self, millis};
pub(crate) use tenure_serve::shape::{fence, known};

/// Foreign text, on one line of a terminal: characters that control it, or hide or reorder text, are escaped.
pub(crate) fn plain(text: impl Display) -> String {
    let mut escaped = String::new();
    for c in text.to_string().chars() {
        match c {
            // Escaped in Rust, and harmless here.
            '\'' | '"' | '\\' => escaped.push(c),
            // Invisible letters: fillers of Hangul, and the empty pattern of Braille.
            '\u{115F}' | '\u{1160}' | '\u{3164}' | '\u{FFA0}' | '\u{2800}' => {
                escaped.extend(c.escape_unicode());
            }
            // Behind another character, because at the beginning combining accents would be escaped, too.
            c => escaped.extend(format!("x{c}").escape_debug().skip(1)),
        }
    }
    escaped
}

/// A duration for users: two units at most.
pub(crate) fn for_people(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..TWO_DAYS => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / DAY, seconds / 3600 % 24),
    }
}

const DAY: u64 = 24 * 3600;
const TWO_DAYS: u64 = 2 * DAY;

/// A time within a sentence, to the millisecond: `3 s`, `1 h 30 m`.
pub(crate) fn in_sentence(time: Duration) -> String {
    let millis = time.as_millis();
    if millis < 1000 {
        return format!("{millis} ms");
    }
    let minutes = time.as_secs() / 60;
    let (days, hours) = match time.as_secs() {
        0..TWO_DAYS => (0, minutes / 60),
        _ => (minutes / 60 / 24, minutes / 60 % 24),
    };
    // Whole milliseconds, without zeros at their end.
    let seconds = (millis - u128::from(minutes) * 60_000) as f64 / 1000.0;
    let parts = [(days, "d"), (hours, "h"), (minutes % 60, "m")];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let mut parts: Vec<_> = parts.map(|(count, unit)| format!("{count} {unit}")).collect();
    if seconds > 0.0 {
        parts.push(format!("{seconds} s"));
    }
    parts.join(" ")
}

/// The present time for users: the local time in ISO 8601.
pub(crate) fn clock() -> String {
    let now = jiff::Timestamp::try_from(now()).unwrap_or_default();
    now.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

/// The present time for programs: milliseconds since 1970.
pub(crate) fn clock_ms() -> u64 {
    millis(now())
}

pub(crate) fn ago(moment: SystemTime) -> String {
    for_people(now().duration_since(moment).unwrap_or_default())
}

#[expect(clippy::disallowed_methods, reason = "shown as calendar time")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// The description of a client. It is escaped already.
pub(crate) fn who(about: &About) -> String {
    about.to_string()
}

/// The holders of a lock, and since when; none if it is free.
pub(crate) fn holders(info: &LockInfo) -> Option<String> {
    let first = info.holders.first()?;
    let time = known(first.since).map(|since| format!(" for {}", ago(since)));
    Some(who_all(info) + &time.unwrap_or_default())
}

/// A held lock, for users.
pub(crate) fn holding(guard: &Guard) -> String {
    let fence = fence(guard.fence()).map(|fence| format!(" with fence {fence}"));
    format!("holding `{}`{}", guard.name(), fence.unwrap_or_default())
}

/// The first holder, and the number of the others.
pub(crate) fn who_all(info: &LockInfo) -> String {
    let first = info.holders.first().map(|holder| holds(info, holder)).unwrap_or_default();
    match info.holding.max(info.holders.len()) {
        0 | 1 => first,
        count => format!("{first} and {} more", count - 1),
    }
}

/// The description of one holder of a lock.
pub(crate) fn holds(lock: &LockInfo, holder: &HolderInfo) -> String {
    who(&shape::about(lock, holder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_on_its_line() {
        let hidden = [
            '\u{115f}', '\u{200b}', '\u{200f}', '\u{2028}', '\u{202e}', '\u{2066}', '\u{61c}',
            '\u{feff}',
        ];
        for hostile in hidden.into_iter().chain(['\n', '\r', '\t', '\u{7}', '\u{1b}', '\u{9b}']) {
            let text = plain(format!("a{hostile}b"));
            assert!(text.starts_with("a\\") && text.is_ascii(), "{text:?}");
        }
        for harmless in ["orders/42 ü", "e\u{301}te\u{301}", "it's \"here\"", r"a\b", "文件"] {
            assert_eq!(plain(harmless), harmless);
        }
    }

    #[test]
    fn times_are_printed_shortly() {
        let text = |seconds| for_people(Duration::from_secs(seconds));
        assert_eq!([text(3), text(42), text(75), text(7_260)], ["3.0s", "42s", "1m15s", "2h01m"]);
        assert_eq!([text(86_400), text(190_000)], ["24h00m", "2d04h"]);
    }

    #[test]
    fn times_in_sentences_are_as_they_were_typed() {
        let text = |millis| in_sentence(Duration::from_millis(millis));
        for (millis, expected) in [
            (0, "0 ms"),
            (50, "50 ms"),
            (1_500, "1.5 s"),
            (3_000, "3 s"),
            (90_000, "1 m 30 s"),
            (5_400_000, "1 h 30 m"),
            (86_400_000, "24 h"),
            (259_200_000, "3 d"),
        ] {
            assert_eq!(text(millis), expected);
        }
    }
}
