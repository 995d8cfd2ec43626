//! All processes that the command has started, also those that have left its process group, as `timeout` does, or their
//! parent, as a daemon does.
//!
//! An orphan becomes a child of the guardian, which is its subreaper; a child of `tenure`, if the guardian was killed.

use std::collections::HashSet;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process_group,
    set_child_subreaper, waitid, waitpid,
};

use crate::exec::processes::{Identity, Process, Processes};

/// The command and its descendants.
pub(crate) struct ProcessTree {
    /// The command's pid, and its process group. The command is not reaped while this is in use, so that the pid is
    /// not reused.
    pub(crate) group: Pid,
    /// The process whose descendants these are, while it lives.
    guardian: Option<Pid>,
    /// Children that this process had before it became `tenure`, as a shell's `&` and `>(…)` leave them
    /// behind with `exec`.
    inherited: HashSet<Identity>,
}

/// Makes this process the subreaper of its descendants. Where the kernel refuses, orphans are missed.
pub(crate) fn adopt_orphans() {
    let _ = set_child_subreaper(Some(getpid()));
}

/// The children of this process.
pub(crate) fn children() -> HashSet<Identity> {
    // Usually there are none, and /proc need not be read.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    if matches!(waitid(WaitId::All, options), Err(Errno::CHILD)) {
        return HashSet::new();
    }
    let Some(Processes { own, all }) = Processes::read() else { return HashSet::new() };
    all.iter().filter(|one| one.parent == own).map(Process::identity).collect()
}

/// Reaps adopted orphans that have ended; not the processes in `kept`, which another module waits for.
pub(crate) fn reap_orphans(kept: &[Pid]) {
    let Some(Processes { own, all }) = Processes::read() else { return };
    let ended = all.iter().filter(|one| one.parent == own && one.has_ended);
    for orphan in ended.filter(|one| !kept.contains(&one.pid)) {
        let _ = waitpid(Some(orphan.pid), WaitOptions::NOHANG);
    }
}

impl ProcessTree {
    /// The process tree of the command with this pid.
    pub(crate) fn of(command: Pid, guardian: Option<Pid>, inherited: HashSet<Identity>) -> Self {
        Self { group: command, guardian, inherited }
    }

    /// The living processes, as far as /proc shows them.
    pub(crate) fn living(&self) -> Vec<Process> {
        self.read().unwrap_or_default()
    }

    fn read(&self) -> Option<Vec<Process>> {
        let Processes { own, all } = Processes::read()?;
        let is_guardian = |one: &Process| one.parent == own && Some(one.pid) == self.guardian;
        let guardian = all.iter().find(|one| is_guardian(one) && !one.has_ended);
        let root = guardian.map_or(own, |guardian| guardian.number);
        let is_inherited = |one: &Process| {
            is_guardian(one) || (one.parent == own && self.inherited.contains(&one.identity()))
        };
        // Breadth first: a parent precedes its children.
        let (mut process_tree, mut met) = (vec![root], 0);
        while met < process_tree.len() {
            let children =
                all.iter().filter(|one| one.parent == process_tree[met] && !is_inherited(one));
            let children: Vec<_> = children.map(|one| one.number).collect();
            process_tree.extend(children);
            met += 1;
        }
        let members: HashSet<_> = process_tree.into_iter().skip(1).collect();
        let is_living = |one: &Process| members.contains(&one.number) && !one.has_ended;
        Some(all.into_iter().filter(is_living).collect())
    }

    /// Whether none of them lives. Where /proc is missing, the command stands for all.
    pub(crate) fn has_ended(&self, has_command_ended: bool) -> bool {
        let is_none = || self.read().map_or(has_command_ended, |living| living.is_empty());
        // Read twice: a process whose parent ends during the first scan may be missed by it.
        is_none() && is_none()
    }

    /// Sends a signal to the command's process group.
    pub(crate) fn signal(&self, signal: Signal) {
        // An error means that it has ended already.
        let _ = kill_process_group(self.group, signal);
    }

    /// Sends a signal to all of them, also outside the process group.
    pub(crate) fn signal_all(&self, signal: Signal) {
        self.signal(signal);
        for one in self.strays() {
            let _ = one.send(signal);
        }
    }

    /// Kills all living processes. Returns those that may not be killed, because they run as another user.
    pub(crate) fn kill(&self) -> Vec<Process> {
        self.signal(Signal::KILL);
        let living = self.living().into_iter();
        living.filter(|one| one.send(Signal::KILL) == Err(Errno::PERM)).collect()
    }

    /// The processes that have left the command's process group.
    pub(crate) fn strays(&self) -> Vec<Process> {
        let mut living = self.living();
        living.retain(|one| one.group != Some(self.group));
        living
    }
}
