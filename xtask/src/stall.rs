//! Noticing that the whole machine stood still.
//!
//! A virtual machine may be stopped for seconds, with everything on it, and goes on as if nothing had happened:
//! leases have ended, nobody was there to renew them, and every test of time that ran meanwhile fails. That
//! says nothing about the locks. So a thread looks at the clock all the time, and knows when it could not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::sh;

/// How often the thread looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Far longer than a busy machine keeps a thread from running.
const STALL: Duration = Duration::from_secs(1);

/// The times at which the machine went on after it had stood still.
#[derive(Default)]
struct Seen(Mutex<Vec<Instant>>);

/// Looks until this is dropped.
pub(crate) struct Stalls {
    seen: Arc<Seen>,
    is_over: Arc<AtomicBool>,
    looking: Option<JoinHandle<()>>,
}

impl Stalls {
    pub(crate) fn watch() -> Self {
        let (seen, is_over) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
        let looking = thread::spawn({
            let (seen, is_over) = (seen.clone(), is_over.clone());
            move || look(&seen, &is_over)
        });
        Self { seen, is_over, looking: Some(looking) }
    }

    /// Whether the machine stood still at some moment in this time before that one.
    pub(crate) fn was_one_within(&self, time: Duration, before: Instant) -> bool {
        let seen = self.seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().any(|&at| at <= before + STALL && before.saturating_duration_since(at) < time)
    }
}

fn look(seen: &Seen, is_over: &AtomicBool) {
    let mut before = now();
    while !is_over.load(Ordering::Relaxed) {
        pause(LOOK_EVERY);
        let (gap, at) = (now() - before, now());
        if gap > STALL {
            sh::say(format!("this machine stood still for {:.1} s", gap.as_secs_f64()));
            seen.0.lock().unwrap_or_else(PoisonError::into_inner).push(at);
        }
        before = at;
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // It has nothing in it that could panic.
        self.looking.take().into_iter().for_each(|looking| drop(looking.join()));
    }
}

#[expect(clippy::disallowed_methods, reason = "it measures the machine, no lease depends on it")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "nothing else than time is to pass")]
fn pause(time: Duration) {
    thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_after_a_stall_is_told_from_what_did_not() {
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
