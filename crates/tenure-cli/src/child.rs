//! The command that runs: in a process group of its own, so that all of it can be ended, and with
//! the terminal, so that it can be worked with.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, kill_process_group, waitid,
    waitpid,
};
use tokio::sync::mpsc;

use crate::terminal;

/// A command that was started.
pub(crate) struct Child {
    group: Pid,
    changes: mpsc::UnboundedReceiver<Change>,
}

/// What has become of it.
enum Change {
    Stopped,
    /// With its status, or 128 and the signal that ended it, as a shell has it. It is still to be
    /// waited for, so that its group is there.
    Ended(u8),
}

impl Child {
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        let child = command.process_group(0).spawn()?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let group = group.ok_or_else(|| io::Error::other("the child has no process id"))?;
        terminal::give(group);
        let (told, changes) = mpsc::unbounded_channel();
        std::thread::Builder::new().name("tenure-child".into()).spawn(move || {
            while let Some(change) = next_change(group) {
                let is_last = matches!(change, Change::Ended(_));
                if told.send(change).is_err() || is_last {
                    return;
                }
            }
        })?;
        Ok(Self { group, changes })
    }

    /// Sends a signal to the command, and to all that it has started.
    pub(crate) fn signal(&self, signal: Signal) {
        // Gone already is as good.
        let _ = kill_process_group(self.group, signal);
    }

    /// How it ended: its status, or 128 and the signal that ended it.
    pub(crate) async fn end(&mut self) -> u8 {
        loop {
            match self.changes.recv().await {
                Some(Change::Stopped) => self.stop_along(),
                Some(Change::Ended(code)) => {
                    terminal::take(self.group);
                    let _ = waitpid(Some(self.group), WaitOptions::empty());
                    return code;
                }
                None => return u8::MAX,
            }
        }
    }

    /// Stopped at the terminal: so are we, and the shell is there again. Continued, the command is,
    /// too.
    fn stop_along(&self) {
        if terminal::is_there() {
            terminal::stop_job();
            terminal::give(self.group);
            self.signal(Signal::CONT);
        }
    }
}

/// Waits until the command is stopped or has ended.
fn next_change(group: Pid) -> Option<Change> {
    let look = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    let seen = waitid(WaitId::Pid(group), look).ok()??;
    if seen.stopped() {
        // That it was stopped has been seen; that it has ended is left to be waited for.
        waitid(WaitId::Pid(group), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG).ok()?;
        return Some(Change::Stopped);
    }
    Some(Change::Ended(code(&seen)))
}

fn code(status: &WaitIdStatus) -> u8 {
    let signal = status.terminating_signal().map(|signal| 128 + signal);
    let code = status.exit_status().or(signal).and_then(|code| u8::try_from(code).ok());
    code.unwrap_or(u8::MAX)
}
