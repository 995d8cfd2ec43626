//! The processes of this machine, as /proc shows them.
//!
//! The numbers there are those of the PID namespace for which /proc was mounted, which need not be
//! ours: `unshare --pid` without `--mount-proc` leaves the outer one. The lines `NSpid` and `NSpgid`
//! of a process give its numbers in every namespace from that one inwards.

use std::fs;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};

/// One process, as it was when it was looked at.
#[derive(Clone)]
pub(crate) struct Process {
    /// Its number, and its parent's, in /proc.
    pub(crate) number: i32,
    pub(crate) parent: i32,
    /// Its number, and its group's, for us.
    pub(crate) pid: Pid,
    pub(crate) group: Option<Pid>,
    pub(crate) is_stopped: bool,
    pub(crate) has_ended: bool,
    pub(crate) program: String,
    /// In ticks since the machine was booted.
    started: u64,
}

/// What no later process has: a number in /proc, and a time.
pub(crate) type Identity = (i32, u64);

/// All processes that /proc shows.
pub(crate) struct Processes {
    /// Our own number in /proc.
    pub(crate) own: i32,
    pub(crate) all: Vec<Process>,
}

impl Processes {
    /// None if /proc is missing, does not show us, or cannot be read: then nothing is known.
    pub(crate) fn look() -> Option<Self> {
        let numbers = numbers_in_namespaces("/proc/self", "NSpid:")?;
        let own = *numbers.first()?;
        if numbers.last() != Some(&getpid().as_raw_nonzero().get()) {
            return None;
        }
        let depth = numbers.len() - 1;
        let mut all = Vec::new();
        for entry in fs::read_dir("/proc").ok()? {
            let Some(number) = entry.ok()?.file_name().to_str().and_then(|it| it.parse().ok())
            else {
                continue;
            };
            // One that has ended, or is another user's and hidden from us, hides no other.
            if let Ok(process) = Process::read(number, depth) {
                all.extend(process);
            }
        }
        Some(Self { own, all })
    }
}

impl Process {
    /// None if it has no number in our namespace.
    fn read(number: i32, depth: usize) -> io::Result<Option<Self>> {
        let folder = format!("/proc/{number}");
        let stat = text_of(format!("{folder}/stat"))?;
        let (pid, group) = match depth {
            0 => (Some(number), None),
            _ => {
                let at_our_depth =
                    |field| Some(*numbers_in_namespaces(&folder, field)?.get(depth)?);
                (at_our_depth("NSpid:"), at_our_depth("NSpgid:"))
            }
        };
        Ok(pid.and_then(Pid::from_raw).and_then(|pid| Self::parse(number, pid, group, &stat)))
    }

    fn parse(number: i32, pid: Pid, group: Option<i32>, stat: &str) -> Option<Self> {
        // The program's name, in brackets, may have anything in it.
        let (head, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<_> = rest.split(' ').collect();
        let group = group.or_else(|| fields.get(2)?.parse().ok());
        let state = fields[0];
        Some(Self {
            number,
            parent: fields.get(1)?.parse().ok()?,
            pid,
            // A process that is about to go has a group of -1.
            group: group.filter(|&it| it > 0).and_then(Pid::from_raw),
            is_stopped: state == "T",
            has_ended: matches!(state, "Z" | "X") && !has_other_threads(number),
            program: head.split_once(" (")?.1.to_owned(),
            started: fields.get(19)?.parse().ok()?,
        })
    }

    pub(crate) fn identity(&self) -> Identity {
        (self.number, self.started)
    }

    /// Sends it a signal. One that has ended needs none.
    ///
    /// Its number may be another's by now. A handle stays with the process that had the number when
    /// the handle was made, and if ours is still there after that, the handle is ours.
    pub(crate) fn send(&self, signal: Signal) -> Result<(), Errno> {
        let handle = pidfd_open(self.pid, PidfdFlags::empty());
        if matches!(handle, Err(Errno::SRCH)) || !self.is_there() {
            return Ok(());
        }
        let sent = match handle {
            Ok(handle) => pidfd_send_signal(handle, signal),
            // The kernel is older than 5.3, or no more files may be open.
            Err(_) => kill_process(self.pid, signal),
        };
        if sent == Err(Errno::SRCH) { Ok(()) } else { sent }
    }

    pub(crate) fn is_there(&self) -> bool {
        let stat = text_of(format!("/proc/{}/stat", self.number)).unwrap_or_default();
        let seen = Self::parse(self.number, self.pid, None, &stat);
        seen.is_some_and(|seen| seen.identity() == self.identity())
    }
}

/// The group and the session that we are in; none for one that lies outside our PID namespace, as with
/// `unshare --pid --fork`, or where /proc is missing.
pub(crate) fn own_group() -> Option<Pid> {
    innermost("NSpgid:")
}

pub(crate) fn own_session() -> Option<Pid> {
    innermost("NSsid:")
}

fn innermost(field: &str) -> Option<Pid> {
    numbers_in_namespaces("/proc/self", field)?.last().copied().and_then(Pid::from_raw)
}

/// From the namespace of /proc inwards.
fn numbers_in_namespaces(folder: impl AsRef<Path>, field: &str) -> Option<Vec<i32>> {
    let status = text_of(folder.as_ref().join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().map(|number| number.parse().ok()).collect()
}

/// A file of /proc. A program's name may be of any bytes, and is cut in the middle of a character.
fn text_of(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// A process whose main thread has ended is shown as a zombie while its other threads run. What cannot be
/// read counts as running.
fn has_other_threads(number: i32) -> bool {
    match fs::read_dir(format!("/proc/{number}/task")) {
        Ok(threads) => threads.count() > 1,
        Err(error) => !is_of_ended(&error),
    }
}

/// Whether that is what reading about a process gives that has just ended.
fn is_of_ended(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH))
}
