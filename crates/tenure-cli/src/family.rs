//! All that the command has started, also what has left its process group, as `timeout` does.
//!
//! Whoever loses its parent becomes our child (we are its subreaper), so nobody is missed.

use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpid};

/// A process that descends from us.
#[derive(Clone, Copy)]
pub(crate) struct Relative {
    pub(crate) pid: Pid,
    pub(crate) group: Option<Pid>,
    pub(crate) is_stopped: bool,
    has_ended: bool,
    parent: Option<Pid>,
}

/// From now on, nobody whom the command starts leaves the family. Where that cannot be had, orphans
/// do.
pub(crate) fn adopt_orphans() {
    let _ = set_child_subreaper(Some(getpid()));
}

/// Those who live.
pub(crate) fn living() -> Vec<Relative> {
    let (all, mut family) = (everybody(), vec![getpid()]);
    let mut living = Vec::new();
    // Everybody's parent stands in the list before its children do.
    let mut met = 0;
    while met < family.len() {
        let children = all.iter().filter(|one| one.parent == Some(family[met]));
        let children: Vec<_> = children.copied().collect();
        family.extend(children.iter().map(|child| child.pid));
        living.extend(children.into_iter().filter(|child| !child.has_ended));
        met += 1;
    }
    living
}

/// Forgets orphans that have ended. Not the command itself: its end is somebody's business.
pub(crate) fn forget_orphans(command: Pid) {
    let ours = everybody().into_iter().filter(|one| one.parent == Some(getpid()));
    for orphan in ours.filter(|one| one.has_ended && one.pid != command) {
        let _ = waitpid(Some(orphan.pid), WaitOptions::NOHANG);
    }
}

fn everybody() -> Vec<Relative> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let names = processes.filter_map(|process| process.ok()?.file_name().into_string().ok());
    names.filter_map(|name| one(name.parse().ok()?)).collect()
}

fn one(number: i32) -> Option<Relative> {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The program's name, in brackets, may have anything in it.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    // A process that is about to go has a group of -1.
    let mut pid = || Some(fields.next()?.parse().ok().filter(|&it| it > 0).and_then(Pid::from_raw));
    Some(Relative {
        parent: pid()?,
        group: pid()?,
        pid: Pid::from_raw(number)?,
        is_stopped: state == "T",
        has_ended: matches!(state, "Z" | "X"),
    })
}
