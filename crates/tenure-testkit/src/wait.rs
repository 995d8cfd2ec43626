//! Waiting for something outside the process, which sends no event: ask, pause briefly, ask again.

use std::time::{Duration, Instant};

/// Between two questions. Short against a server's start (about 10 ms), long enough to leave it the CPU.
const PAUSE: Duration = Duration::from_millis(2);

/// The first answer that is not none, or none once `bound` has passed.
#[expect(
    clippy::disallowed_methods,
    reason = "a process that starts or ends sends no event to wait on"
)]
pub(crate) fn until<T>(bound: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + bound;
    loop {
        // Asked once more after the bound, so that a paused machine does not fail a server that is ready.
        let late = Instant::now() >= end;
        match ask() {
            None if late => return None,
            None => std::thread::sleep(PAUSE),
            answer => return answer,
        }
    }
}
