//! Detects that this process is a forked child: it has its parent's memory, but none of its threads, and its
//! parent's locks are not its own.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::count;
#[cfg(windows)]
pub(crate) use windows::count;

/// The process in which a value was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u64);

impl Process {
    /// The current process.
    pub(crate) fn this() -> Self {
        Self(count())
    }

    /// Whether the current process is a forked child of it.
    pub(crate) fn is_left(self) -> bool {
        self != Self::this()
    }
}
