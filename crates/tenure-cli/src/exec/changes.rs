//! State changes of a child process: it stops, or it ends.

use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, waitid};

/// A state change.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    Stopped(Option<Signal>),
    Ended(Ending),
    /// The guardian received nothing from `tenure` until the lease was nearly over, and ends the command.
    Overdue,
}

/// How a child ended.
#[derive(Clone, Copy)]
pub(crate) struct Ending {
    /// Its exit status, or 128 and the number of the signal that ended it, as in a shell.
    pub(crate) status: u8,
    pub(crate) signal: Option<Signal>,
}

impl Ending {
    /// The end was not observed.
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

/// Reports the state changes of a child until it has ended. The child is not reaped, so that its pid and its
/// process group are not reused.
pub(crate) fn follow(child: Pid, mut report: impl FnMut(Change)) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    while let Ok(Some(seen)) = retry_on_intr(|| waitid(WaitId::Pid(child), options)) {
        if !seen.stopped() {
            return report(Change::Ended(Ending::of(&seen)));
        }
        // Consume the stop that was reported.
        let _ = waitid(WaitId::Pid(child), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        report(Change::Stopped(seen.stopping_signal().and_then(Signal::from_named_raw)));
    }
}

/// Waits until any child has ended, without reaping it. False if there is none.
pub(crate) fn until_any_ends() -> bool {
    retry_on_intr(|| waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)).is_ok()
}

/// Whether a child has ended; it is not reaped.
pub(crate) fn has_ended(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::Pid(child), options), Ok(None))
}

/// Waits for every child, and for processes adopted meanwhile: for all descendants, if this process is their
/// subreaper.
pub(crate) fn reap_all() {
    while retry_on_intr(|| waitid(WaitId::All, WaitIdOptions::EXITED)).is_ok() {}
}
