//! The command that runs: in a process group of its own, so that all of it can be ended, and with the
//! terminal, so that it can be worked with.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group, waitpid,
};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use tokio::sync::mpsc;

/// A command that was started.
pub(crate) struct Child {
    group: Pid,
    has_terminal: bool,
    changes: mpsc::UnboundedReceiver<WaitStatus>,
}

impl Child {
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        let child = command.process_group(0).spawn()?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let group = group.ok_or_else(|| io::Error::other("the child has no process id"))?;
        let has_terminal = give_terminal(group);
        let (told, changes) = mpsc::unbounded_channel();
        std::thread::Builder::new().name("tenure-child".into()).spawn(move || {
            while let Ok(Some((_, status))) = waitpid(Some(group), WaitOptions::UNTRACED) {
                if told.send(status).is_err() || !status.stopped() {
                    return;
                }
            }
        })?;
        Ok(Self { group, has_terminal, changes })
    }

    /// Sends a signal to the command, and to all that it has started.
    pub(crate) fn signal(&self, signal: Signal) {
        // Gone already is as good.
        let _ = kill_process_group(self.group, signal);
    }

    /// How it ended: its status, or 128 and the signal that ended it, as a shell has it.
    pub(crate) async fn end(&mut self) -> u8 {
        loop {
            let Some(status) = self.changes.recv().await else { return u8::MAX };
            if status.stopped() {
                self.stop_along();
                continue;
            }
            let signal = status.terminating_signal().map(|signal| 128 + signal);
            let code = status.exit_status().or(signal).and_then(|code| u8::try_from(code).ok());
            return code.unwrap_or(u8::MAX);
        }
    }

    /// Stopped at the terminal: so are we, and the shell is there again; continued, it is, too.
    fn stop_along(&self) {
        if !self.has_terminal {
            return;
        }
        let _ = kill_process(getpid(), Signal::STOP);
        give_terminal(self.group);
        self.signal(Signal::CONT);
    }
}

/// If we have the terminal, the command gets it. The shell takes it back when we end.
fn give_terminal(group: Pid) -> bool {
    let terminal = rustix::stdio::stdin();
    let is_ours = tcgetpgrp(terminal).is_ok_and(|owner| owner == rustix::process::getpgrp());
    is_ours && tcsetpgrp(terminal, group).is_ok()
}
