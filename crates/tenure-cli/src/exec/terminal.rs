//! The terminal, and the job that a shell started there.
//!
//! The command has a process group of its own. It gets the terminal when it uses it, not before: in
//! `tenure run x -- make | less` the reader is `less`. A job that is stopped at the terminal stops as a whole: a command
//! that ran on while its lock is not renewed could run beside the next holder.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::process::{Pid, Signal, getpid, kill_current_process_group, setpgid};
use rustix::termios::{LocalModes, tcgetattr, tcgetpgrp, tcsetpgrp};

use crate::exec::processes::{own_group, own_session};

/// Whether a signal stops a job: by a key at the terminal, or because the job uses the terminal in the background.
pub(crate) fn stops(signal: Signal) -> bool {
    matches!(signal, Signal::TSTP | Signal::TTIN | Signal::TTOU)
}

/// Gives the terminal to the command's group, if this job has it.
pub(crate) fn give(group: Pid) -> bool {
    ours()
        .is_some_and(|terminal| has(&terminal, own_group()) && tcsetpgrp(&terminal, group).is_ok())
}

/// Takes the terminal back from the group of a command that has ended and was not reaped yet, so that a script
/// can use it after that. A shell with job control takes it by itself.
pub(crate) fn take(group: Pid) -> bool {
    let Some(terminal) = ours().filter(|terminal| has(terminal, Some(group))) else { return false };
    let Some(job) = own_group() else { return true };
    // Only a member of the foreground group may change it.
    if setpgid(None, Some(group)).is_ok() {
        let _ = tcsetpgrp(&terminal, job);
        let _ = setpgid(None, Some(job));
    }
    true
}

/// Whether there is a controlling terminal.
pub(crate) fn is_there() -> bool {
    ours().is_some()
}

/// Whether a group has the terminal, if there is one.
pub(crate) fn is_with(group: Pid) -> bool {
    ours().is_some_and(|terminal| has(&terminal, Some(group)))
}

/// Whether this is the controlling terminal, and this job is in the background: a progress line would overwrite the
/// output of other jobs.
pub(crate) fn is_in_background(output: impl AsFd) -> bool {
    tcgetpgrp(output).is_ok_and(|owner| Some(owner) != own_group())
}

/// Whether output is allowed there: a terminal with `stty tostop` stops a background job that writes.
pub(crate) fn allows_output(output: impl AsFd) -> bool {
    let is_strict = tcgetattr(&output).is_ok_and(|it| it.local_modes.contains(LocalModes::TOSTOP));
    !is_strict || !is_in_background(output)
}

/// Whether a shell at the terminal would continue a stopped job. The first process of a PID namespace cannot be
/// stopped from within.
pub(crate) fn can_stop_job() -> bool {
    is_there() && getpid() != Pid::INIT && own_session() != own_group()
}

/// Stops this process and the script that it is part of, until the shell continues the job.
pub(crate) fn stop_job() {
    let _ = kill_current_process_group(Signal::STOP);
}

/// Sends a terminal signal to the script that this process is part of: the terminal sent it to the command's group
/// alone.
pub(crate) fn signal_job(signal: Signal) {
    let _ = kill_current_process_group(signal);
}

/// The controlling terminal, also if standard input is another file.
fn ours() -> Option<File> {
    File::open("/dev/tty").ok()
}

fn has(terminal: impl AsFd, group: Option<Pid>) -> bool {
    tcgetpgrp(terminal).is_ok_and(|owner| Some(owner) == group)
}
