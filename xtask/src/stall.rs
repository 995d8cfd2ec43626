//! Detects that the whole machine was paused.
//!
//! A virtual machine may be paused for seconds, with every process on it, and resumed: leases have expired
//! without a renewal, and timing tests that ran meanwhile fail. That proves nothing about the locks. So a
//! thread polls the clock, and a large gap between two polls is a pause.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::sh;

/// How often the thread polls the clock.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// Far longer than a busy machine keeps a thread from running.
const STALL: Duration = Duration::from_secs(1);

/// The times at which the machine resumed after a pause.
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

    /// Whether the machine was paused within `time` before `before`.
    pub(crate) fn was_one_within(&self, time: Duration, before: Instant) -> bool {
        let seen = self.seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().any(|&at| at <= before + STALL && before.saturating_duration_since(at) < time)
    }
}

fn poll(seen: &Seen, is_over: &AtomicBool) {
    let mut before = now();
    while !is_over.load(Ordering::Relaxed) {
        pause(POLL_EVERY);
        let (gap, at) = (now() - before, now());
        if gap > STALL {
            sh::say(format!("this machine was paused for {:.1} s", gap.as_secs_f64()));
            seen.0.lock().unwrap_or_else(PoisonError::into_inner).push(at);
        }
        before = at;
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
}
