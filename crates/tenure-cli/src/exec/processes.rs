//! The processes of this machine, as /proc shows them.
//!
//! The pids there are those of the PID namespace for which /proc was mounted, which need not be this process's own:
//! `unshare --pid` without `--mount-proc` leaves the outer one. The lines `NSpid` and `NSpgid` list a process's pids
//! in every namespace from that one inwards.

use std::fs;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};

/// A snapshot of one process.
#[derive(Clone)]
pub(crate) struct Process {
    /// Its pid, and its parent's, in /proc.
    pub(crate) number: i32,
    pub(crate) parent: i32,
    /// Its pid, and its group, in the namespace of this process.
    pub(crate) pid: Pid,
    pub(crate) group: Option<Pid>,
    pub(crate) is_stopped: bool,
    pub(crate) has_ended: bool,
    pub(crate) program: String,
    /// In clock ticks since boot.
    started: u64,
}

/// The pid in /proc and the start time: no later process has both.
pub(crate) type Identity = (i32, u64);

/// All processes that /proc shows.
pub(crate) struct Processes {
    /// The pid of this process in /proc.
    pub(crate) own: i32,
    pub(crate) all: Vec<Process>,
}

impl Processes {
    /// None if /proc is missing, does not show this process, or cannot be read.
    pub(crate) fn read() -> Option<Self> {
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
            // Skip a process that has ended meanwhile, or is hidden because it is another user's.
            if let Ok(process) = Process::read(number, depth) {
                all.extend(process);
            }
        }
        Some(Self { own, all })
    }
}

impl Process {
    /// None if it is not in this process's namespace.
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
        // The program's name, in parentheses, may contain any character.
        let (head, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<_> = rest.split(' ').collect();
        let group = group.or_else(|| fields.get(2)?.parse().ok());
        let state = fields[0];
        Some(Self {
            number,
            parent: fields.get(1)?.parse().ok()?,
            pid,
            // An exiting process has the group -1.
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

    /// Sends it a signal; nothing if it has ended.
    ///
    /// The pid may have been reused. A pidfd refers to the process that had the pid when it was opened, so if this process
    /// still exists after that, the pidfd is right.
    pub(crate) fn send(&self, signal: Signal) -> Result<(), Errno> {
        let handle = pidfd_open(self.pid, PidfdFlags::empty());
        if matches!(handle, Err(Errno::SRCH)) || !self.is_there() {
            return Ok(());
        }
        let sent = match handle {
            Ok(handle) => pidfd_send_signal(handle, signal),
            // The kernel is older than 5.3, or the limit of open files is reached.
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

/// The process group and the session of this process; none if outside its PID namespace, as with
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

/// A file of /proc. A program's name may contain any bytes, and may be cut within a character.
fn text_of(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// A process whose main thread has ended is shown as a zombie while its other threads run. If it cannot be read, it
/// counts as running.
fn has_other_threads(number: i32) -> bool {
    match fs::read_dir(format!("/proc/{number}/task")) {
        Ok(threads) => threads.count() > 1,
        Err(error) => !is_of_ended(&error),
    }
}

/// Whether this is the error of reading about a process that has just ended.
fn is_of_ended(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH))
}
