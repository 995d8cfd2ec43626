//! The shell for which `tenure hold` holds a lock: found by `hold`, watched and signalled by the holder.
//!
//! It is watched by a pidfd. A pid may be reused before the pidfd is open, so the start time is compared after
//! that: no later process has both.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{PidfdFlags, Signal, pidfd_open};
use tokio::sync::oneshot;

use crate::args::time::pause;
use crate::exec::holder;
use crate::exec::processes::{Identity, Process, Processes};

/// How often to check for the shell's end where there is no pidfd: the kernel is older than 5.3.
const POLL: Duration = Duration::from_millis(200);

pub(crate) struct Shell {
    pub(crate) process: Process,
    ended: Option<oneshot::Receiver<()>>,
}

/// The shell that evaluates our standard output: the nearest ancestor that has the other end of this pipe. None if no ancestor
/// has: the output goes to a file, to /dev/null, or to another program, as in `$(tenure hold x | cat)`.
pub(crate) fn find() -> io::Result<Option<Process>> {
    let Processes { own, all } = Processes::read().ok_or_else(unknown)?;
    let Ok(output) = fs::read_link("/proc/self/fd/1") else { return Ok(None) };
    if !output.to_string_lossy().starts_with("pipe:") {
        return Ok(None);
    }
    let parent_of = |number: i32| {
        let parent = all.iter().find(|one| one.number == number)?.parent;
        all.iter().find(|one| one.number == parent)
    };
    let ancestors = std::iter::successors(parent_of(own), |one| parent_of(one.number));
    Ok(ancestors.into_iter().find(|one| reads(one.number, &output)).cloned())
}

fn unknown() -> io::Error {
    io::Error::other("the shell that runs `tenure hold` is not found in /proc")
}

/// Whether a process has the reading end of a pipe.
fn reads(number: i32, pipe: &Path) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{number}/fd")) else { return false };
    files.flatten().any(|file| {
        let is_pipe = fs::read_link(file.path()).is_ok_and(|it| it == pipe);
        let name = file.file_name();
        let info = format!("/proc/{number}/fdinfo/{}", name.to_string_lossy());
        is_pipe && fs::read_to_string(info).is_ok_and(|info| is_for_reading(&info))
    })
}

/// By the line `flags:`, in octal digits, of which the last two bits are zero for reading.
fn is_for_reading(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & 3 == 0)
}

impl Shell {
    /// Begins to watch the process that has this identity. None if it has ended.
    pub(crate) fn watch(identity: Identity) -> io::Result<Option<Self>> {
        let Processes { all, .. } = Processes::read().ok_or_else(unknown)?;
        let shell = all.into_iter().find(|one| one.identity() == identity && !one.has_ended);
        let Some(process) = shell else { return Ok(None) };
        let ended = match pidfd_open(process.pid, PidfdFlags::empty()) {
            Ok(pidfd) => Some(end_of(pidfd)?),
            Err(Errno::SRCH) => return Ok(None),
            Err(_) => None,
        };
        Ok(process.is_there().then_some(Self { process, ended }))
    }

    /// Waits until it has ended. Cancel safe.
    pub(crate) async fn ended(&mut self) {
        match &mut self.ended {
            Some(ended) => {
                let _ = ended.await;
                // A receiver must not be polled again.
                self.ended = None;
            }
            None => {
                while self.process.is_there() {
                    pause(POLL).await;
                }
            }
        }
    }

    /// Sends a signal to the shell and to its descendants: a shell that ends by a signal leaves the program that
    /// it was running behind.
    pub(crate) fn signal(&self, signal: Signal) {
        let descendants = Processes::read().map(|it| descendants(&it, self.process.number));
        // The shell first, so that it does not go on with the next command.
        let _ = self.process.send(signal);
        for one in descendants.unwrap_or_default() {
            let _ = one.send(signal);
        }
    }
}

fn descendants(processes: &Processes, root: i32) -> Vec<Process> {
    let mut members = HashSet::from([root]);
    loop {
        let is_new =
            |one: &&Process| members.contains(&one.parent) && !members.contains(&one.number);
        let found: Vec<_> = processes.all.iter().filter(is_new).map(|one| one.number).collect();
        if found.is_empty() {
            break;
        }
        members.extend(found);
    }
    members.remove(&root);
    // Holders are among them if the shell is a subreaper, as the first process of a container is: this one, and those of the
    // shell's other locks, which are not lost.
    let is_signalled =
        |one: &&Process| members.contains(&one.number) && one.program != holder::NAME;
    processes.all.iter().filter(is_signalled).cloned().collect()
}

/// Resolves when the process of a pidfd ends.
fn end_of(pidfd: OwnedFd) -> io::Result<oneshot::Receiver<()>> {
    let (send, ended) = oneshot::channel();
    std::thread::Builder::new().name("tenure-shell".into()).spawn(move || {
        let _ = retry_on_intr(|| poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None));
        let _ = send.send(());
    })?;
    Ok(ended)
}
