//! Polling for a change outside the process, which sends no event.

use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// Between two polls. Short against a server's start (about 10 ms), long enough to leave it the CPU.
const PAUSE: Duration = Duration::from_millis(2);

/// The first result that is not none, or none once `bound` has passed.
pub(crate) fn until<T>(bound: Duration, poll: impl FnMut() -> Option<T>) -> Option<T> {
    every(PAUSE, bound, poll)
}

/// The same, with another pause between two polls.
#[expect(
    clippy::disallowed_methods,
    reason = "a process that starts or ends sends no event to wait on"
)]
pub(crate) fn every<T>(
    pause: Duration,
    bound: Duration,
    mut poll: impl FnMut() -> Option<T>,
) -> Option<T> {
    let end = Instant::now() + bound;
    loop {
        // Polled once more after the bound, so that a paused machine does not fail a server that is ready.
        let late = Instant::now() >= end;
        match poll() {
            None if late => return None,
            None => std::thread::sleep(pause),
            found => return found,
        }
    }
}

/// Whether our child has ended. It is left to be waited for, so its id stays ours.
pub(crate) fn has_ended(pid: Pid) -> bool {
    let poll = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    matches!(waitid(WaitId::Pid(pid), poll), Ok(Some(_)))
}
