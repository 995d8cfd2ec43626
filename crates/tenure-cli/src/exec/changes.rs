//! What becomes of a child: it is stopped, or it ends.

use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, waitid};

/// What has become of it.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    Stopped(Option<Signal>),
    Ended(Ending),
    /// The guardian has heard nothing of `tenure` until the lease was nearly over, and ends the command.
    Overdue,
}

/// How it ended.
#[derive(Clone, Copy)]
pub(crate) struct Ending {
    /// Its status, or 128 and the signal that ended it, as a shell has it.
    pub(crate) status: u8,
    pub(crate) signal: Option<Signal>,
}

impl Ending {
    /// Of one whose end was not seen.
    pub(crate) const UNKNOWN: Self = Self { status: u8::MAX, signal: None };

    fn of(seen: &WaitIdStatus) -> Self {
        let signal = seen.terminating_signal();
        let number = seen.exit_status().or(signal.map(|signal| 128 + signal));
        Self {
            status: number.and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX),
            signal: signal.and_then(Signal::from_named_raw),
        }
    }
}

/// Tells what becomes of a child, until it has ended. It is left to be waited for, so that its number,
/// and its group, stay its own.
pub(crate) fn follow(child: Pid, mut tell: impl FnMut(Change)) {
    let look = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    while let Ok(Some(seen)) = retry_on_intr(|| waitid(WaitId::Pid(child), look)) {
        if !seen.stopped() {
            return tell(Change::Ended(Ending::of(&seen)));
        }
        // That it was stopped has been seen.
        let _ = waitid(WaitId::Pid(child), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        tell(Change::Stopped(seen.stopping_signal().and_then(Signal::from_named_raw)));
    }
}

/// Waits until any child has ended, which is left to be waited for. False if there is none.
pub(crate) fn until_any_ends() -> bool {
    retry_on_intr(|| waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)).is_ok()
}

/// Whether a child has ended, which is left to be waited for.
pub(crate) fn has_ended(child: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::Pid(child), look), Ok(None))
}

/// Waits for every child, and for those that are adopted meanwhile: for all descendants, if we are
/// their subreaper.
pub(crate) fn await_all() {
    while retry_on_intr(|| waitid(WaitId::All, WaitIdOptions::EXITED)).is_ok() {}
}
