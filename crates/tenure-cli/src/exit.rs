//! How the command ends: numbers that scripts rely on.

use std::fmt::Display;
use std::process::ExitCode;

use rustix::process::{Pid, Signal, getpid};
use signal_hook::low_level::emulate_default_handler;
use tenure::Error;

use crate::voice::{self, say};

/// Why the command ends without the child's own status. The numbers are those of sysexits(3)
/// and of the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command line is wrong.
    Usage = 64,
    /// The store cannot be reached.
    Unavailable = 69,
    /// The operating system refuses what this process needs for itself.
    System = 71,
    /// The data cannot be written.
    CannotWrite = 74,
    /// The lock was not acquired.
    NotAcquired = 75,
    /// The lock was lost while the child ran.
    Lost = 76,
    /// The child's program cannot be run.
    CannotRun = 126,
    /// The child's program is not there.
    NotFound = 127,
    /// Nobody reads the data any more.
    BrokenPipe = 128 + 13,
}

impl Exit {
    /// Says why on standard error.
    pub(crate) fn because(self, why: &impl Display) -> ExitCode {
        say(why);
        self.into()
    }

    /// Says on standard error what the library did not do.
    pub(crate) fn told(error: &Error) -> ExitCode {
        Self::of(error).because(error)
    }

    /// What an error of the library means for a script.
    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::Invalid(_) | Error::Mismatch { .. } => Self::Usage,
            Error::Busy { .. } | Error::TimedOut { .. } => Self::NotAcquired,
            Error::Lost(_) => Self::Lost,
            _ => Self::Unavailable,
        }
    }
}

/// Ends as the signal of ^C ends a program, and not with a status: a shell goes on with the next command
/// of a script if this one seems to have handled it. The first process of a PID namespace, as in a
/// container, is not ended by its own signals: there the status says as much.
pub(crate) fn interrupted() -> ExitCode {
    voice::finish();
    if getpid() != Pid::INIT {
        let _ = emulate_default_handler(Signal::INT.as_raw());
    }
    ExitCode::from(128 + Signal::INT.as_raw() as u8)
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
