//! The terminal, and the job that a shell started there.
//!
//! The command has a process group of its own. It gets the terminal when it asks for it, not before:
//! in `tenure run x -- make | less` it is `less` that reads. Whoever stops the job at the terminal
//! stops all of it: a command that ran on while its lock is not renewed would run into the next
//! holder.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::process::{Pid, Signal, getpid, kill_current_process_group, setpgid};
use rustix::termios::{LocalModes, tcgetattr, tcgetpgrp, tcsetpgrp};

use crate::exec::processes::{own_group, own_session};

/// Whether a signal stops a job: typed at the terminal, or because the terminal is another's.
pub(crate) fn stops(signal: Signal) -> bool {
    matches!(signal, Signal::TSTP | Signal::TTIN | Signal::TTOU)
}

/// If we have the terminal, the group of a command gets it.
pub(crate) fn give(group: Pid) -> bool {
    ours()
        .is_some_and(|terminal| has(&terminal, own_group()) && tcsetpgrp(&terminal, group).is_ok())
}

/// If the group of a command that has ended, and was not waited for yet, has the terminal, we get
/// it: a script that goes on after us finds it as it was. A shell with job control takes it by
/// itself.
pub(crate) fn take(group: Pid) -> bool {
    let Some(terminal) = ours().filter(|terminal| has(terminal, Some(group))) else { return false };
    let Some(job) = own_group() else { return true };
    // Only a member of the group that has it may pass it on.
    if setpgid(None, Some(group)).is_ok() {
        let _ = tcsetpgrp(&terminal, job);
        let _ = setpgid(None, Some(job));
    }
    true
}

/// Whether we have a terminal at all.
pub(crate) fn is_there() -> bool {
    ours().is_some()
}

/// Whether a group has the terminal, if there is one.
pub(crate) fn is_with(group: Pid) -> bool {
    ours().is_some_and(|terminal| has(&terminal, Some(group)))
}

/// Whether this is our terminal, and we are a job in the background there. What is written again and
/// again would be written over what others write.
pub(crate) fn is_behind(output: impl AsFd) -> bool {
    tcgetpgrp(output).is_ok_and(|owner| Some(owner) != own_group())
}

/// Whether what we say is welcome there: a terminal with `stty tostop` stops a job that talks in the
/// background.
pub(crate) fn bears_talk(output: impl AsFd) -> bool {
    let is_strict = tcgetattr(&output).is_ok_and(|it| it.local_modes.contains(LocalModes::TOSTOP));
    !is_strict || !is_behind(output)
}

/// Whether there is a shell above us at a terminal, which would continue a job that was stopped. The first
/// process of a PID namespace cannot be stopped from within.
pub(crate) fn can_stop_job() -> bool {
    is_there() && getpid() != Pid::INIT && own_session() != own_group()
}

/// Stops us and the script that we are part of, until the shell continues the job.
pub(crate) fn stop_job() {
    let _ = kill_current_process_group(Signal::STOP);
}

/// Passes a signal of the terminal on to the script that we are part of: it went to the command alone,
/// which had the terminal.
pub(crate) fn tell_job(signal: Signal) {
    let _ = kill_current_process_group(signal);
}

/// The terminal that we belong to, wherever input comes from.
fn ours() -> Option<File> {
    File::open("/dev/tty").ok()
}

fn has(terminal: impl AsFd, group: Option<Pid>) -> bool {
    tcgetpgrp(terminal).is_ok_and(|owner| Some(owner) == group)
}
