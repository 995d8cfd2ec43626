//! The exit statuses, on which scripts rely.

use std::fmt::Display;
use std::process::ExitCode;

use rustix::process::{Pid, Signal, getpid};
use signal_hook::low_level::emulate_default_handler;
use tenure::Error;
use tenure_serve::word::Word;

use crate::args::patience::store_error;
use crate::view::output::{self, say};

/// Why `tenure` ends without the command's own status. The numbers are those of sysexits(3) and of the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command line is wrong.
    Usage = 64,
    /// The store cannot be reached.
    Unavailable = 69,
    /// The operating system refuses a resource that this process needs.
    System = 71,
    /// The data cannot be written.
    CannotWrite = 74,
    /// The lock was not acquired.
    NotAcquired = 75,
    /// The lock was lost while the command ran.
    Lost = 76,
    /// The command's program cannot be run.
    CannotRun = 126,
    /// The command's program is not found.
    NotFound = 127,
    /// The reader of the data has ended.
    BrokenPipe = 128 + 13,
}

impl Exit {
    /// Reports why on standard error.
    pub(crate) fn because(self, why: &impl Display) -> ExitCode {
        say(why);
        self.into()
    }

    /// Reports an error of the library on standard error, with advice where there is some.
    pub(crate) fn report(error: &Error) -> ExitCode {
        let advice = store_error(error).and_then(|trouble| advice(&trouble.to_string()));
        match advice {
            Some(advice) => {
                // A server's message often ends with a full stop.
                let met = error.to_string();
                Self::of(error).because(&format!("{}: {advice}", met.trim_end_matches('.')))
            }
            None => Self::of(error).because(error),
        }
    }

    /// The exit status of an error of the library.
    pub(crate) fn of(error: &Error) -> Self {
        match Word::of(error) {
            Word::Usage => Self::Usage,
            Word::NotAcquired => Self::NotAcquired,
            Word::Lost => Self::Lost,
            Word::System => Self::System,
            Word::Unavailable => Self::Unavailable,
        }
    }
}

/// The remedy for a server's error, if it is known.
pub(crate) fn advice(said: &str) -> Option<&'static str> {
    // A server's error code comes first in its message; a script's comes behind a dash.
    let is_said =
        |code: &str| said.contains(&format!(": {code} ")) || said.contains(&format!(" -{code} "));
    ADVICE.iter().find(|(code, _)| is_said(code)).map(|(_, advice)| *advice)
}

/// The remedies for refused operations, by the server's error code.
const ADVICE: &[(&str, &str)] = &[
    ("NOAUTH", "the server wants a password: put it into TENURE_URL, as in redis://:PASSWORD@HOST"),
    ("WRONGPASS", "the user or the password in the URL is wrong"),
    ("NOPERM", "grant this user what docs/cli.md lists, with ACL SETUSER"),
    ("READONLY", "this is a replica: connect to the master"),
    (
        "NOREPLICAS",
        "too few replicas follow this master: bring them back, or connect to the new master",
    ),
    ("OOM", "the server is full: give it more memory, or a server of its own to locks"),
    ("MISCONF", "the server cannot write to its disk: make room there"),
];

/// Ends by SIGINT, and not with a status: a shell goes on with the next command of a script if this one seems to have
/// handled ^C. The first process of a PID namespace, as in a container, is not ended by its own signals: there it is the
/// status 130.
pub(crate) fn interrupted() -> ExitCode {
    output::finish();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The HTTP interface has the same numbers.
    #[test]
    fn words_and_exit_statuses_are_the_same() {
        for (word, exit) in [
            (Word::Usage, Exit::Usage),
            (Word::Unavailable, Exit::Unavailable),
            (Word::System, Exit::System),
            (Word::NotAcquired, Exit::NotAcquired),
            (Word::Lost, Exit::Lost),
        ] {
            assert_eq!(word as u8, exit as u8);
        }
    }
}
