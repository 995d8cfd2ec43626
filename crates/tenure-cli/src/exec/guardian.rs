//! The guardian of a command: a process between `tenure` and the command, which is still there when
//! `tenure` is killed on the spot, and so can end the command before the lease is over.
//!
//! It is the command's parent, and the subreaper of all that the command starts: nothing of it gets
//! away from both `tenure` and the guardian unless both are killed. In a process group of its own, it does not
//! die with the job either (`kill -9 %1`). It has none of the command's files, apart from those beyond
//! the standard ones, which the command inherits through it: on a `local:` store one of these keeps the lock.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::exec::changes::{Change, await_all, follow, has_ended, until_any_ends};
use crate::exec::link::{Bequest, Heard, Link, Moment, Order, Word};
use crate::exec::process_tree::{self, ProcessTree};
use crate::exec::{program, signals};

/// The name under which it is called.
pub(crate) const NAME: &str = "tenure-guardian";

/// How often to look who has ended.
const LOOK: Duration = Duration::from_millis(20);

/// How long to wait for the end of what was killed. What takes longer hangs in the kernel, or may not be
/// killed.
const DEATH: Duration = Duration::from_secs(5);

/// A deadline is looked at again after this time, in case the machine was suspended.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Obeys the `tenure` at the other end of standard input.
pub(crate) fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        // It has no standard error.
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve() -> io::Result<()> {
    let _ = rustix::thread::set_name(c"tenure-guardian");
    // What is meant for the command reaches it by way of `tenure`.
    signals::endure(signals::CAUGHT.into_iter())?;
    process_tree::adopt_orphans();
    let link = Arc::new(Link(io::stdin().as_fd().try_clone_to_owned()?.into()));
    link.say(Word::Ready);
    let (order, files) = link.receive()?;
    match start(&order, files) {
        Ok(command) => {
            link.say(Word::Started(command.as_raw_nonzero().get()));
            Guardian::of(command, order, link)?.watch();
            Ok(())
        }
        Err(error) => {
            link.say(Word::Failed(error.raw_os_error().unwrap_or(0)));
            Err(error)
        }
    }
}

/// Starts the command with these files, and keeps none of them open.
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

/// Makes these files our standard ones.
fn take(input: impl AsFd, output: impl AsFd, errors: impl AsFd) -> io::Result<()> {
    dup2_stdin(input)?;
    dup2_stdout(output)?;
    Ok(dup2_stderr(errors)?)
}

struct Guardian {
    process_tree: ProcessTree,
    order: Order,
    link: Arc<Link>,
    /// Until when the lock is held, as far as `tenure` has said.
    deadline: Option<Moment>,
    /// Either of us has begun to end the command.
    is_ending: bool,
}

impl Guardian {
    fn of(command: Pid, order: Order, link: Arc<Link>) -> io::Result<Self> {
        let teller = link.clone();
        let tell = move |change| teller.say(word(change));
        std::thread::Builder::new().spawn(move || follow(command, tell))?;
        std::thread::Builder::new().spawn(move || forget_orphans(command))?;
        let process_tree = ProcessTree::of(command, None, HashSet::new());
        let deadline = Some(order.deadline);
        Ok(Self { process_tree, order, link, deadline, is_ending: false })
    }

    /// Waits for the end of all, or for the moment at which the command must end.
    fn watch(mut self) {
        loop {
            let until_next = self.next().map(|next| next.left().min(LONGEST_WAIT));
            match self.link.hear(until_next) {
                Heard::Word(Word::Held(until)) => self.deadline = Some(until),
                Heard::Word(Word::Ending(at)) => (self.deadline, self.is_ending) = (Some(at), true),
                Heard::Word(Word::Farewell) => return,
                Heard::Word(_) => {}
                Heard::Nothing => self.look_at_clock(),
                Heard::End => return self.inherit(),
            }
        }
    }

    /// When there is something to do if nothing is heard.
    fn next(&self) -> Option<Moment> {
        let deadline = self.deadline.filter(|_| self.order.is_timed)?;
        // `tenure` itself begins a quarter earlier; two signals would be one too many.
        Some(if self.is_ending { deadline } else { deadline.before(self.order.grace * 3 / 4) })
    }

    /// When to begin to kill, so that all have ended at a deadline, also on a busy machine.
    fn kill_before(&self, deadline: Moment) -> Moment {
        deadline.before(self.order.grace / 4)
    }

    /// Nothing was heard for too long: `tenure` is stopped, and does not renew the lock, nor see its end.
    fn look_at_clock(&mut self) {
        if self.next().is_none_or(|next| !next.left().is_zero()) {
            return;
        }
        if self.is_ending {
            self.deadline = None;
            return self.kill();
        }
        self.is_ending = true;
        self.deadline = self.deadline.map(|deadline| self.kill_before(deadline));
        self.link.say(Word::Overdue);
        // Without CONT: a job that was stopped at the terminal stays so until it is killed.
        self.process_tree.signal_all(Signal::TERM);
    }

    /// `tenure` has ended without a farewell: it was killed.
    fn inherit(self) {
        match self.order.bequest {
            Bequest::Leave => {}
            Bequest::Hold if !self.is_ending => await_all(),
            _ => self.end(),
        }
    }

    /// Ends all of it: first by asking, then by force.
    fn end(&self) {
        let over = Moment::now().after(self.order.grace);
        let over = self.deadline.map_or(over, |deadline| over.min(self.kill_before(deadline)));
        self.process_tree.signal_all(Signal::TERM);
        // A stopped process does not end.
        self.process_tree.signal_all(Signal::CONT);
        while !over.left().is_zero() {
            if self.has_family_ended() {
                return;
            }
            pause(LOOK.min(over.left()));
        }
        self.kill();
    }

    fn kill(&self) {
        let over = Moment::now().after(DEATH);
        while !self.has_family_ended() && !over.left().is_zero() {
            self.process_tree.kill();
            pause(LOOK / 4);
        }
    }

    fn has_family_ended(&self) -> bool {
        self.process_tree.has_ended(has_ended(self.process_tree.group))
    }
}

fn word(change: Change) -> Word {
    let number = |signal: Option<Signal>| signal.map_or(0, Signal::as_raw);
    match change {
        Change::Stopped(signal) => Word::Stopped(number(signal)),
        Change::Ended(ending) => {
            let signal = u8::try_from(number(ending.signal)).unwrap_or_default();
            Word::Ended { status: ending.status, signal }
        }
        Change::Overdue => Word::Overdue,
    }
}

/// Forgets adopted processes that have ended, for as long as the command lives.
fn forget_orphans(command: Pid) {
    while until_any_ends() && !has_ended(command) {
        process_tree::forget_orphans(&[command]);
        pause(LOOK);
    }
}

#[expect(clippy::disallowed_methods, reason = "between two looks at other processes")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
