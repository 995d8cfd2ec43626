//! All that the command has started, also what has left its process group, as `timeout` does, or its
//! parent, as a daemon does.
//!
//! A process that loses its parent becomes a child of the guardian, which is its subreaper; of ours,
//! if the guardian was killed.

use std::collections::HashSet;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process_group,
    set_child_subreaper, waitid, waitpid,
};

use crate::exec::processes::{Identity, Process, Processes};

/// The command and all that it has started.
pub(crate) struct ProcessTree {
    /// The command, and the process group that it leads. It is not waited for while this is in use, so
    /// that its number stays its own.
    pub(crate) group: Pid,
    /// Whose descendants they are, while it lives.
    guardian: Option<Pid>,
    /// Children that this process had before it became `tenure`, as a shell's `&` and `>(…)` leave them
    /// behind with `exec`.
    strangers: HashSet<Identity>,
}

/// From now on, what loses its parent becomes our child. Where the kernel refuses that, it is missed.
pub(crate) fn adopt_orphans() {
    let _ = set_child_subreaper(Some(getpid()));
}

/// The children that we have.
pub(crate) fn children() -> HashSet<Identity> {
    // Most often there are none, and nothing need be looked for.
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    if matches!(waitid(WaitId::All, look), Err(Errno::CHILD)) {
        return HashSet::new();
    }
    let Some(Processes { own, all }) = Processes::look() else { return HashSet::new() };
    all.iter().filter(|one| one.parent == own).map(Process::identity).collect()
}

/// Forgets orphans that were adopted and have ended; not those to be kept, whose end is told elsewhere.
pub(crate) fn forget_orphans(kept: &[Pid]) {
    let Some(Processes { own, all }) = Processes::look() else { return };
    let ended = all.iter().filter(|one| one.parent == own && one.has_ended);
    for orphan in ended.filter(|one| !kept.contains(&one.pid)) {
        let _ = waitpid(Some(orphan.pid), WaitOptions::NOHANG);
    }
}

impl ProcessTree {
    /// The family of the command with this number.
    pub(crate) fn of(command: Pid, guardian: Option<Pid>, strangers: HashSet<Identity>) -> Self {
        Self { group: command, guardian, strangers }
    }

    /// Those who live, as far as /proc tells.
    pub(crate) fn living(&self) -> Vec<Process> {
        self.look().unwrap_or_default()
    }

    fn look(&self) -> Option<Vec<Process>> {
        let Processes { own, all } = Processes::look()?;
        let is_guardian = |one: &Process| one.parent == own && Some(one.pid) == self.guardian;
        let guardian = all.iter().find(|one| is_guardian(one) && !one.has_ended);
        let root = guardian.map_or(own, |guardian| guardian.number);
        let is_stranger = |one: &Process| {
            is_guardian(one) || (one.parent == own && self.strangers.contains(&one.identity()))
        };
        // A parent stands in the list before its children.
        let (mut process_tree, mut met) = (vec![root], 0);
        while met < process_tree.len() {
            let children =
                all.iter().filter(|one| one.parent == process_tree[met] && !is_stranger(one));
            let children: Vec<_> = children.map(|one| one.number).collect();
            process_tree.extend(children);
            met += 1;
        }
        let members: HashSet<_> = process_tree.into_iter().skip(1).collect();
        let is_living = |one: &Process| members.contains(&one.number) && !one.has_ended;
        Some(all.into_iter().filter(is_living).collect())
    }

    /// Whether none of them lives. Where /proc cannot tell, the command stands for all.
    pub(crate) fn has_ended(&self, has_command_ended: bool) -> bool {
        let is_none = || self.look().map_or(has_command_ended, |living| living.is_empty());
        // A process whose parent ended while it was looked for is in no list; it is in the next.
        is_none() && is_none()
    }

    /// Sends a signal to the command, and to what it has started in its process group.
    pub(crate) fn signal(&self, signal: Signal) {
        // Gone already is as good.
        let _ = kill_process_group(self.group, signal);
    }

    /// Sends a signal to all of them, wherever they have gone.
    pub(crate) fn signal_all(&self, signal: Signal) {
        self.signal(signal);
        for one in self.strays() {
            let _ = one.send(signal);
        }
    }

    /// Kills all that live now. Those that may not be killed, because they run as another user.
    pub(crate) fn kill(&self) -> Vec<Process> {
        self.signal(Signal::KILL);
        let living = self.living().into_iter();
        living.filter(|one| one.send(Signal::KILL) == Err(Errno::PERM)).collect()
    }

    /// What has left the command's process group.
    pub(crate) fn strays(&self) -> Vec<Process> {
        let mut living = self.living();
        living.retain(|one| one.group != Some(self.group));
        living
    }
}
