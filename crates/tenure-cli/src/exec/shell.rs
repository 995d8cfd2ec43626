//! The shell for which `tenure hold` holds a lock: found by `hold`, watched and signalled by the holder.
//!
//! It is watched by a pidfd. A pid may be reused before the pidfd is open, so the start time is compared after
//! that: no later process has both.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{PidfdFlags, Signal, pidfd_open};
use tokio::sync::oneshot;

use crate::args::time::pause;
use crate::exec::processes::{Identity, Process, Processes};

/// How often to check for the shell's end where there is no pidfd: the kernel is older than 5.3.
const POLL: Duration = Duration::from_millis(200);

pub(crate) struct Shell {
    pub(crate) process: Process,
    ended: Option<oneshot::Receiver<()>>,
}

/// The shell that evaluates our standard output: the nearest ancestor whose own standard output is another file.
/// A subshell between the two, as in `$(cd /; tenure hold x)`, writes to the same pipe.
pub(crate) fn find() -> io::Result<Process> {
    let Processes { own, all } = Processes::read().ok_or_else(unknown)?;
    let output = output_of(own);
    let of = |number: i32| all.iter().find(|one| one.number == number);
    let mut parent = of(own).and_then(|it| of(it.parent)).ok_or_else(unknown)?;
    while output.is_some() && output_of(parent.number) == output {
        parent = of(parent.parent).ok_or_else(unknown)?;
    }
    Ok(parent.clone())
}

fn unknown() -> io::Error {
    io::Error::other("the shell that runs `tenure hold` is not found in /proc")
}

/// The file that is a process's standard output, such as `pipe:[42]`.
fn output_of(number: i32) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{number}/fd/1")).ok()
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
    // The holder itself is one of them if the shell is a subreaper.
    members.remove(&processes.own);
    processes.all.iter().filter(|one| members.contains(&one.number)).cloned().collect()
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
