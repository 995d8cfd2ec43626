//! Noticing that this process is a forked child. `unsafe` is allowed here, for one call.
//!
//! A child has its parent's memory, but none of its threads, and no right to what its parent holds. Its
//! pid says that it is another process, except where numbers repeat: a container's first process and
//! one that it forks into a new PID namespace both have the number 1. So children are counted, by a
//! handler that the C library calls in each; a look at the count costs nothing. The pid is compared
//! where a system call does not matter, for a child that was made past the C library.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Forks between the first process that looked and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// How often this process, and those it comes from, were forked.
pub(crate) fn count() -> u64 {
    watch();
    FORKS.load(Ordering::Relaxed)
}

/// Has the C library call `in_child` in every forked child. Without a lock: a child that is forked in
/// the middle of this must not wait for a thread that it does not have.
#[expect(unsafe_code, reason = "only the C library can call something in a forked child")]
fn watch() {
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    if IS_WATCHED.load(Ordering::Relaxed) || IS_WATCHED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the handler is a function that lives as long as the program, and all it does is add to
    // an atomic number, which is allowed in a child of a process with several threads.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    // Out of memory: the pid alone must do.
    debug_assert_eq!(failed, 0);
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process in which something was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    forks: u64,
    pid: u32,
}

impl Process {
    /// This one.
    pub(crate) fn this() -> Self {
        Self { forks: count(), pid: std::process::id() }
    }

    /// Whether this is a child of it.
    pub(crate) fn is_left(self) -> bool {
        self.forks != FORKS.load(Ordering::Relaxed)
    }

    /// The same, with a system call.
    pub(crate) fn is_surely_left(self) -> bool {
        self != Self::this()
    }
}
