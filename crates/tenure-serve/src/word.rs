//! The words of the exit statuses, which are also those of the HTTP interface.

use tenure::Error;

/// Why an operation on a lock has failed. The numbers are the exit statuses of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The request is wrong.
    Usage = 64,
    /// The store cannot be reached.
    Unavailable = 69,
    /// The operating system refuses a resource.
    System = 71,
    /// The lock was not acquired.
    NotAcquired = 75,
    /// The lock was lost.
    Lost = 76,
}

impl Word {
    /// The word of an error of the library.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        match error {
            Error::Invalid(_) | Error::Mismatch { .. } => Self::Usage,
            Error::Busy { .. } | Error::TimedOut { .. } => Self::NotAcquired,
            Error::Lost(_) => Self::Lost,
            _ => Self::Unavailable,
        }
    }

    /// The word, as programs read it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Unavailable => "unavailable",
            Self::System => "system",
            Self::NotAcquired => "not-acquired",
            Self::Lost => "lost",
        }
    }
}
