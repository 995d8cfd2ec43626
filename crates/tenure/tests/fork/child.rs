//! A forked child: the only file of the tests with `unsafe` code.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::process::{Pid, WaitOptions, waitpid};

/// Runs `work` in a forked child, and waits until it has succeeded.
pub(crate) fn fork(work: impl FnOnce()) {
    fork_with((), |()| work());
}

/// Gives `inherited` to `work` in a forked child, and back to the caller when the child has succeeded.
#[expect(unsafe_code, reason = "to fork is unsafe, and these tests are about just that")]
pub(crate) fn fork_with<T>(inherited: T, work: impl FnOnce(T)) -> T {
    // SAFETY: the child has only this thread. It allocates, starts threads and connects, which the C library
    // allows after a fork; whatever else it must not do is what is tested here.
    judge(unsafe { libc::fork() }, inherited, work)
}

/// The same, by the system call alone: the C library does not know of this child.
#[expect(unsafe_code, reason = "to fork is unsafe, and these tests are about just that")]
pub(crate) fn fork_unnoticed<T>(inherited: T, work: impl FnOnce(T)) -> T {
    // SAFETY: as above. The C library does not prepare its allocator for this child, so `work` must not
    // allocate.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    judge(i32::try_from(pid).expect("a pid"), inherited, work)
}

#[expect(unsafe_code, reason = "to end without the parent's preparations")]
fn judge<T>(pid: i32, inherited: T, work: impl FnOnce(T)) -> T {
    if pid == 0 {
        let end = catch_unwind(AssertUnwindSafe(|| work(inherited)));
        // SAFETY: it ends here, without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(end.is_err())) };
    }
    let pid = Pid::from_raw(pid).expect("it is forked");
    let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().expect("it has ended");
    assert_eq!(status.exit_status(), Some(0), "the child has failed");
    inherited
}
