//! The command that runs: in a process group of its own, so that all of it can be ended, and with
//! the terminal when it needs it, so that it can be worked with.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc as plain_mpsc;

use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, kill_process,
    kill_process_group, waitid, waitpid,
};
use tokio::sync::mpsc;

use crate::{family, terminal};

/// A command that was started.
pub(crate) struct Child {
    pub(crate) group: Pid,
    changes: mpsc::UnboundedReceiver<Change>,
    /// It was told to stop at the terminal, and did not so far.
    is_to_stop: bool,
    /// It has ended, and was waited for: its number may be another's by now.
    is_buried: bool,
}

/// What has become of it.
pub(crate) enum Change {
    Stopped(Option<Signal>),
    Ended(Ending),
}

/// How it ended.
#[derive(Clone, Copy)]
pub(crate) struct Ending {
    /// Its status, or 128 and the signal that ended it, as a shell has it.
    pub(crate) status: u8,
    pub(crate) signal: Option<Signal>,
}

impl Child {
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        let (tell, changes) = mpsc::unbounded_channel();
        let (know, known) = plain_mpsc::channel();
        // Before the command: once that runs, nothing may fail.
        std::thread::Builder::new().name("tenure-child".into()).spawn(move || {
            known.recv().into_iter().for_each(|group| follow(group, &tell));
        })?;
        family::adopt_orphans();
        let child = command.process_group(0).spawn()?;
        let group = Pid::from_child(&child);
        let _ = know.send(group);
        Ok(Self { group, changes, is_to_stop: false, is_buried: false })
    }

    /// Passes a signal on. One that is stopped could not end if it is asked to.
    pub(crate) fn pass_on(&mut self, signal: Signal) {
        self.is_to_stop |= signal == Signal::TSTP;
        self.signal(signal);
        if matches!(signal, Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT) {
            self.signal(Signal::CONT);
        }
    }

    /// Sends a signal to the command, and to what it has started in its process group.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.is_buried {
            let group = Some(self.group);
            return send(signal, family::living().into_iter().filter(|one| one.group == group));
        }
        // Gone already is as good.
        let _ = kill_process_group(self.group, signal);
    }

    /// It was stopped because it wanted the terminal, and has it now. Continuing it undoes the ^Z that
    /// came while it was stopped; so that comes once more.
    pub(crate) fn go_on_with_terminal(&mut self) {
        self.signal(Signal::CONT);
        if std::mem::take(&mut self.is_to_stop) {
            self.signal(Signal::TSTP);
        }
    }

    /// Sends a signal to all that it has started, wherever that has gone.
    pub(crate) fn signal_all(&self, signal: Signal) {
        self.signal(signal);
        send(signal, self.strays().into_iter());
    }

    /// Stops all of it. Those who were not stopped before, besides its group.
    pub(crate) fn halt(&self) -> Vec<Pid> {
        self.signal(Signal::STOP);
        let strays = self.strays().into_iter().filter(|one| !one.is_stopped);
        let is_halted = |pid: &Pid| kill_process(*pid, Signal::STOP).is_ok();
        strays.map(|one| one.pid).filter(is_halted).collect()
    }

    /// Whether it is stopped now.
    pub(crate) fn is_stopped(&self) -> bool {
        family::living().iter().any(|one| one.pid == self.group && one.is_stopped)
    }

    /// Continues what was stopped.
    pub(crate) fn go_on(&mut self, halted: &[Pid]) {
        self.is_to_stop = false;
        self.signal(Signal::CONT);
        for pid in halted {
            let _ = kill_process(*pid, Signal::CONT);
        }
    }

    /// What it has started outside its process group.
    fn strays(&self) -> Vec<family::Relative> {
        let living = family::living().into_iter();
        living.filter(|one| one.group != Some(self.group)).collect()
    }

    /// What becomes of it next. Dropped in between, nothing is lost.
    pub(crate) async fn next(&mut self) -> Change {
        let unknown = Ending { status: u8::MAX, signal: None };
        self.changes.recv().await.unwrap_or(Change::Ended(unknown))
    }

    pub(crate) fn is_buried(&self) -> bool {
        self.is_buried
    }

    /// It has ended: the terminal comes back, with what was typed there.
    pub(crate) fn bury(&mut self, ending: Ending) {
        self.is_buried = true;
        let had_terminal = terminal::take(self.group);
        let _ = waitpid(Some(self.group), WaitOptions::empty());
        if let (true, Some(signal @ (Signal::INT | Signal::QUIT))) = (had_terminal, ending.signal) {
            terminal::tell_job(signal);
        }
    }
}

fn send(signal: Signal, to: impl Iterator<Item = family::Relative>) {
    for one in to {
        let _ = kill_process(one.pid, signal);
    }
}

/// Tells what becomes of the command, until it has ended. It is left to be waited for, so that its
/// group is there.
fn follow(group: Pid, tell: &mpsc::UnboundedSender<Change>) {
    let look = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    while let Ok(Some(seen)) = retry_on_intr(|| waitid(WaitId::Pid(group), look)) {
        if !seen.stopped() {
            let _ = tell.send(Change::Ended(ending(&seen)));
            return;
        }
        // That it was stopped has been seen.
        let _ = waitid(WaitId::Pid(group), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        let signal = seen.stopping_signal().and_then(Signal::from_named_raw);
        if tell.send(Change::Stopped(signal)).is_err() {
            return;
        }
    }
}

fn ending(status: &WaitIdStatus) -> Ending {
    let signal = status.terminating_signal();
    let number = status.exit_status().or(signal.map(|signal| 128 + signal));
    Ending {
        status: number.and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX),
        signal: signal.and_then(Signal::from_named_raw),
    }
}
