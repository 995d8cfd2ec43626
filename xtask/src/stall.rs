//! Detects that the whole machine was paused, or its calendar clock set.
//!
//! A virtual machine may be paused for seconds, with every process on it, and resumed: leases have expired
//! without a renewal, and timing tests that ran meanwhile fail. That proves nothing about the locks. So a
//! thread polls the clock, and a large gap between two polls is a pause.
//!
//! Its host may also set its calendar clock, by which servers end leases. Clients notice that, and do not use such servers for up to
//! the longest lease, as they should; and Sentinels do nothing for half a minute.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::sh;

/// How often the thread polls the clock.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// Far longer than a busy machine keeps a thread from running.
const STALL: Duration = Duration::from_secs(1);

/// By how much the calendar may move beside the steady clock, between two polls.
const STEP: f64 = 0.005;

/// The times at which the machine resumed after a pause, or its clock was set.
#[derive(Default)]
struct Seen(Mutex<Vec<Instant>>);

/// Polls until this is dropped.
pub(crate) struct Stalls {
    seen: Arc<Seen>,
    is_over: Arc<AtomicBool>,
    polling: Option<JoinHandle<()>>,
}

impl Stalls {
    pub(crate) fn watch() -> Self {
        let (seen, is_over) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
        let polling = thread::spawn({
            let (seen, is_over) = (seen.clone(), is_over.clone());
            move || poll(&seen, &is_over)
        });
        Self { seen, is_over, polling: Some(polling) }
    }

    /// Whether the machine was paused, or its clock set, within `time` before `before`.
    pub(crate) fn was_one_within(&self, time: Duration, before: Instant) -> bool {
        let seen = self.seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().any(|&at| at <= before + STALL && before.saturating_duration_since(at) < time)
    }
}

fn poll(seen: &Seen, is_over: &AtomicBool) {
    let start = now();
    let (mut before, mut calendar) = (start, Calendar::read(start));
    while !is_over.load(Ordering::Relaxed) {
        pause(POLL_EVERY);
        let (gap, at) = (now() - before, now());
        if gap > STALL {
            sh::say(format!("this machine was paused for {:.1} s", gap.as_secs_f64()));
            seen.0.lock().unwrap_or_else(PoisonError::into_inner).push(at);
        }
        let read = Calendar::read(start);
        if let Some(step) = read.step_since(&calendar) {
            sh::say(format!("the clock of this machine was set by {step:+.3} s"));
            seen.0.lock().unwrap_or_else(PoisonError::into_inner).push(at);
        }
        (before, calendar) = (at, read);
    }
}

/// How far the calendar is ahead of the steady clock, in seconds: bounds, for the thread may be interrupted between reading the
/// two.
struct Calendar {
    least: f64,
    most: f64,
}

impl Calendar {
    fn read(start: Instant) -> Self {
        let before = now() - start;
        let wall = wall();
        let after = now() - start;
        Self { least: wall - after.as_secs_f64(), most: wall - before.as_secs_f64() }
    }

    /// By how much the calendar was certainly set.
    fn step_since(&self, before: &Self) -> Option<f64> {
        let (forward, back) = (self.least - before.most, before.least - self.most);
        if forward > STEP {
            Some(forward)
        } else if back > STEP {
            Some(-back)
        } else {
            None
        }
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // The thread cannot panic.
        self.polling.take().into_iter().for_each(|polling| drop(polling.join()));
    }
}

#[expect(clippy::disallowed_methods, reason = "it measures the machine, no lease depends on it")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "it measures the machine, no lease depends on it")]
fn wall() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

#[expect(clippy::disallowed_methods, reason = "only time must pass")]
fn pause(time: Duration) {
    thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_after_a_pause_is_distinguished_from_others() {
        let stalls = Stalls::watch();
        let (at, minute) = (now(), Duration::from_secs(60));
        assert!(!stalls.was_one_within(minute, at));
        stalls.seen.0.lock().unwrap().push(at);
        assert!(stalls.was_one_within(minute, at));
        assert!(stalls.was_one_within(minute, at + minute / 2));
        assert!(!stalls.was_one_within(minute, at + minute * 2));
        assert!(!stalls.was_one_within(minute, at - minute));
    }

    #[test]
    fn a_clock_that_was_set_is_distinguished_from_an_interrupted_thread() {
        let before = Calendar { least: 100.0, most: 100.001 };
        let step = |least, most| Calendar { least, most }.step_since(&before);
        assert_eq!(step(100.0, 100.002), None);
        assert_eq!(step(98.0, 100.0), None, "interrupted for two seconds");
        assert!(step(100.2, 100.201).is_some_and(|by| (0.19..0.2).contains(&by)));
        assert!(step(99.0, 99.5).is_some_and(|by| (-0.6..-0.4).contains(&by)));
    }
}
