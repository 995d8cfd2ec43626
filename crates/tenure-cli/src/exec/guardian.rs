//! The guardian of a command: a process between `tenure` and the command that survives a `kill -9` of `tenure`, and then
//! ends the command before the lease is over.
//!
//! It is the command's parent, and the subreaper of all processes that the command starts: none of them escapes
//! unless both `tenure` and the guardian are killed. It has a process group of its own, so that `kill -9 %1` does not
//! kill it with the job. It closes the command's standard files. Other files that the command inherits pass through
//! it: on a `local:` store one of these keeps the lock.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::exec::changes::{Change, follow, has_ended, reap_all, until_any_ends};
use crate::exec::link::{Link, Message, Moment, OnKilled, Order, Received};
use crate::exec::process_tree::{self, ProcessTree};
use crate::exec::{program, signals};

/// The name under which it is started.
pub(crate) const NAME: &str = "tenure-guardian";

/// How often to check which processes have ended.
const POLL: Duration = Duration::from_millis(20);

/// How long to wait for the end of killed processes. Those that take longer hang in the kernel, or may not be killed.
const KILL_TIME: Duration = Duration::from_secs(5);

/// The longest wait between two checks of a deadline, because the machine may be suspended.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Serves the `tenure` at the other end of standard input.
pub(crate) fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        // It has no standard error.
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve() -> io::Result<()> {
    let _ = rustix::thread::set_name(c"tenure-guardian");
    // Signals for the command are forwarded by `tenure`.
    signals::survive(signals::CAUGHT.into_iter())?;
    process_tree::adopt_orphans();
    let link = Arc::new(Link(io::stdin().as_fd().try_clone_to_owned()?.into()));
    link.send(Message::Ready);
    let (order, files) = link.receive_order()?;
    match start(&order, files) {
        Ok(command) => {
            link.send(Message::Started(command.as_raw_nonzero().get()));
            Guardian::of(command, order, link)?.watch();
            Ok(())
        }
        Err(error) => {
            link.send(Message::Failed(error.raw_os_error().unwrap_or(0)));
            Err(error)
        }
    }
}

/// Starts the command with these files, and closes them.
fn start(order: &Order, files: Vec<OwnedFd>) -> io::Result<Pid> {
    let [input, output, errors] = &files[..] else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    take(input, output, errors)?;
    let started = program::start(&order.command, &[]);
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    take(&nothing, &nothing, &nothing)?;
    Ok(Pid::from_child(&started?))
}

/// Makes these files the standard ones.
fn take(input: impl AsFd, output: impl AsFd, errors: impl AsFd) -> io::Result<()> {
    dup2_stdin(input)?;
    dup2_stdout(output)?;
    Ok(dup2_stderr(errors)?)
}

struct Guardian {
    process_tree: ProcessTree,
    order: Order,
    link: Arc<Link>,
    /// Until when the lock is held, as `tenure` reported last.
    deadline: Option<Moment>,
    /// `tenure` or the guardian has begun to end the command.
    is_ending: bool,
}

impl Guardian {
    fn of(command: Pid, order: Order, link: Arc<Link>) -> io::Result<Self> {
        let reporter = link.clone();
        let report = move |change| reporter.send(message(change));
        std::thread::Builder::new().spawn(move || follow(command, report))?;
        std::thread::Builder::new().spawn(move || reap_orphans(command))?;
        let process_tree = ProcessTree::of(command, None, HashSet::new());
        let deadline = Some(order.deadline);
        Ok(Self { process_tree, order, link, deadline, is_ending: false })
    }

    /// Waits for the end of the command, or for the time at which it must be ended.
    fn watch(mut self) {
        loop {
            let until_next = self.next().map(|next| next.left().min(LONGEST_WAIT));
            match self.link.receive(until_next) {
                Received::Message(Message::Held(until)) => self.deadline = Some(until),
                Received::Message(Message::Ending(at)) => {
                    (self.deadline, self.is_ending) = (Some(at), true)
                }
                Received::Message(Message::Finished) => return,
                Received::Message(_) => {}
                Received::Timeout => self.check_deadline(),
                Received::Closed => return self.tenure_killed(),
            }
        }
    }

    /// The next deadline, if no message arrives.
    fn next(&self) -> Option<Moment> {
        let deadline = self.deadline.filter(|_| self.order.is_timed)?;
        // `tenure` itself begins a quarter earlier; the command should not get two TERMs.
        Some(if self.is_ending { deadline } else { deadline.before(self.order.grace * 3 / 4) })
    }

    /// When to begin to kill, so that all processes have ended at the deadline, also on a busy machine.
    fn kill_before(&self, deadline: Moment) -> Moment {
        deadline.before(self.order.grace / 4)
    }

    /// No message for too long: `tenure` is stopped, and neither renews the lock nor ends the command.
    fn check_deadline(&mut self) {
        if self.next().is_none_or(|next| !next.left().is_zero()) {
            return;
        }
        if self.is_ending {
            self.deadline = None;
            return self.kill();
        }
        self.is_ending = true;
        self.deadline = self.deadline.map(|deadline| self.kill_before(deadline));
        self.link.send(Message::Overdue);
        // Without CONT: a job that was stopped at the terminal stays so until it is killed.
        self.process_tree.signal_all(Signal::TERM);
    }

    /// `tenure` has ended without a `Finished` message: it was killed.
    fn tenure_killed(self) {
        match self.order.on_killed {
            OnKilled::Leave => {}
            OnKilled::Hold if !self.is_ending => reap_all(),
            _ => self.end(),
        }
    }

    /// Ends the process tree: first by TERM, then by KILL.
    fn end(&self) {
        let over = Moment::now().after(self.order.grace);
        let over = self.deadline.map_or(over, |deadline| over.min(self.kill_before(deadline)));
        self.process_tree.signal_all(Signal::TERM);
        // A stopped process does not end.
        self.process_tree.signal_all(Signal::CONT);
        while !over.left().is_zero() {
            if self.has_tree_ended() {
                return;
            }
            pause(POLL.min(over.left()));
        }
        self.kill();
    }

    fn kill(&self) {
        let over = Moment::now().after(KILL_TIME);
        while !self.has_tree_ended() && !over.left().is_zero() {
            self.process_tree.kill();
            pause(POLL / 4);
        }
    }

    fn has_tree_ended(&self) -> bool {
        self.process_tree.has_ended(has_ended(self.process_tree.group))
    }
}

fn message(change: Change) -> Message {
    let number = |signal: Option<Signal>| signal.map_or(0, Signal::as_raw);
    match change {
        Change::Stopped(signal) => Message::Stopped(number(signal)),
        Change::Ended(ending) => {
            let signal = u8::try_from(number(ending.signal)).unwrap_or_default();
            Message::Ended { status: ending.status, signal }
        }
        Change::Overdue => Message::Overdue,
    }
}

/// Reaps adopted processes that have ended, for as long as the command lives.
fn reap_orphans(command: Pid) {
    while until_any_ends() && !has_ended(command) {
        process_tree::reap_orphans(&[command]);
        pause(POLL);
    }
}

#[expect(clippy::disallowed_methods, reason = "between two checks of other processes")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
