//! The terminal, and the job that a shell started there. Whoever stops it at the terminal stops all
//! of it: a command that ran on while its lock is not renewed would run into the next holder.

use std::fs::File;

use rustix::process::{Pid, Signal, getpgrp, getsid, kill_process_group, setpgid};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// If we have the terminal, the group of a command gets it.
pub(crate) fn give(group: Pid) {
    let terminal = rustix::stdio::stdin();
    if tcgetpgrp(terminal).is_ok_and(|owner| owner == getpgrp()) {
        let _ = tcsetpgrp(terminal, group);
    }
}

/// If the group of a command that has ended, and was not waited for yet, has the terminal, we get
/// it: a script that goes on after us finds it as it was. A shell with job control takes it by
/// itself.
pub(crate) fn take(group: Pid) {
    let (terminal, ours) = (rustix::stdio::stdin(), getpgrp());
    if tcgetpgrp(terminal).is_ok_and(|owner| owner == group) {
        // Only a member of the group that has it may pass it on.
        if setpgid(None, Some(group)).is_ok() {
            let _ = tcsetpgrp(terminal, ours);
            let _ = setpgid(None, Some(ours));
        }
    }
}

/// Whether we have a terminal at all, wherever input comes from.
pub(crate) fn is_there() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Stops us and the script that we are part of, until the shell continues the job. Without a shell
/// above us nobody would: then nothing is stopped.
pub(crate) fn stop_job() {
    let job = getpgrp();
    if getsid(None).is_ok_and(|session| session != job) {
        let _ = kill_process_group(job, Signal::STOP);
    }
}
