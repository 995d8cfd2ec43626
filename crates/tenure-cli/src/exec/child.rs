//! The running command: in a process group of its own, so that all of it can be signalled, with a guardian that
//! outlives `tenure`, and with the terminal when it reads from it.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc as plain_mpsc};
use std::thread::Builder;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::sync::mpsc;

use crate::exec::changes::{Change, Ending, follow};
use crate::exec::link::{Link, Message, Order, Received};
use crate::exec::process_tree::{self, ProcessTree};
use crate::exec::processes::Process;
use crate::exec::{guardian, program, terminal};
use crate::view::output::say;

/// The time limit for a guardian's start.
const START_TIME: Duration = Duration::from_secs(10);

/// A command that was started.
pub(crate) struct Child {
    pub(crate) process_tree: ProcessTree,
    guardian: Option<Guardian>,
    changes: mpsc::UnboundedReceiver<Change>,
    /// It got a TSTP, and has not stopped yet.
    is_to_stop: bool,
    has_ended: bool,
}

/// The process that outlives `tenure`.
struct Guardian {
    pid: Pid,
    link: Arc<Link>,
    /// The command's pid, for the thread that waits for the guardian: if the guardian is killed, that thread follows
    /// the command itself.
    command: plain_mpsc::Sender<Pid>,
}

impl Child {
    /// Starts a command with these variables.
    pub(crate) fn start(order: &Order, variables: &[(String, String)]) -> io::Result<Self> {
        let inherited = process_tree::children();
        process_tree::adopt_orphans();
        let (send, changes) = mpsc::unbounded_channel();
        let guardian = Guardian::spawn(variables, send.clone()).inspect_err(|error| {
            say(format_args!(
                "the command has no guardian ({error}): if `tenure` is killed, it may outlive its lock"
            ));
        });
        let guardian = guardian.ok();
        let command = match &guardian {
            Some(guardian) => guardian.start(order, send).inspect_err(|_| {
                // A guardian that is killed before it reports may have started the command.
                ProcessTree::of(guardian.pid, Some(guardian.pid), inherited.clone()).kill();
            })?,
            None => start_alone(order, variables, send)?,
        };
        let process_tree = ProcessTree::of(command, guardian.as_ref().map(|it| it.pid), inherited);
        Ok(Self { process_tree, guardian, changes, is_to_stop: false, has_ended: false })
    }

    /// The link to the guardian, if there is one.
    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        self.guardian.as_ref().map(|guardian| guardian.link.clone())
    }

    /// The children whose end is reported by this module.
    pub(crate) fn own(&self) -> Vec<Pid> {
        let guardian = self.guardian.as_ref().map(|guardian| guardian.pid);
        guardian.into_iter().chain([self.process_tree.group]).collect()
    }

    /// Forwards a signal. A stopped process is continued, because it could not end otherwise.
    pub(crate) fn forward(&mut self, signal: Signal) {
        self.is_to_stop |= signal == Signal::TSTP;
        self.process_tree.signal(signal);
        if matches!(signal, Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT) {
            self.process_tree.signal(Signal::CONT);
        }
    }

    /// The command was stopped because it used the terminal, and has the terminal now. CONT cancels a pending ^Z, which
    /// is sent again.
    pub(crate) fn resume_with_terminal(&mut self) {
        self.process_tree.signal(Signal::CONT);
        if std::mem::take(&mut self.is_to_stop) {
            self.process_tree.signal(Signal::TSTP);
        }
    }

    /// Stops the whole process tree. Returns the processes outside its group that were running.
    pub(crate) fn halt(&self) -> Vec<Process> {
        self.process_tree.signal(Signal::STOP);
        let strays = self.process_tree.strays().into_iter().filter(|one| !one.is_stopped);
        strays.filter(|one| one.send(Signal::STOP).is_ok()).collect()
    }

    /// Whether the command is stopped now.
    pub(crate) fn is_stopped(&self) -> bool {
        self.process_tree
            .living()
            .iter()
            .any(|one| one.pid == self.process_tree.group && one.is_stopped)
    }

    /// Continues the stopped processes.
    pub(crate) fn resume(&mut self, halted: &[Process]) {
        self.is_to_stop = false;
        self.process_tree.signal(Signal::CONT);
        for one in halted {
            let _ = one.send(Signal::CONT);
        }
    }

    /// The next state change. Cancel safe.
    pub(crate) async fn next(&mut self) -> Change {
        self.changes.recv().await.unwrap_or(Change::Ended(Ending::UNKNOWN))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The command has ended: takes the terminal back, and forwards a ^C or ^\ that was typed there.
    pub(crate) fn conclude(&mut self, ending: Ending) {
        self.has_ended = true;
        let had_terminal = terminal::take(self.process_tree.group);
        if let (true, Some(signal @ (Signal::INT | Signal::QUIT))) = (had_terminal, ending.signal) {
            terminal::signal_job(signal);
        }
    }
}

impl Drop for Guardian {
    /// The guardian ends first, so that it holds no inherited file open after this process.
    fn drop(&mut self) {
        self.link.send(Message::Finished);
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }
}

impl Guardian {
    /// Starts this program under the guardian's name, and waits until it is ready for an order.
    fn spawn(
        variables: &[(String, String)],
        send: mpsc::UnboundedSender<Change>,
    ) -> io::Result<Self> {
        let (link, theirs) = Link::pair()?;
        let (command, known) = plain_mpsc::channel();
        let (spawned, spawn) = plain_mpsc::channel();
        // The thread comes first: once a process runs, nothing may fail.
        Builder::new().name("tenure-child".into()).spawn(move || {
            spawn.into_iter().for_each(|guardian| {
                follow(guardian, |change| keep_going(guardian, change));
                // A killed guardian leaves the command to this process.
                known.iter().for_each(|command| follow_for(command, &send));
            });
        })?;
        let mut program = Command::new("/proc/self/exe");
        program.arg0(guardian::NAME).envs(variables.iter().map(|(name, value)| (name, value)));
        program.stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let pid = Pid::from_child(&program.spawn()?);
        // Close our copy of the guardian's end, so that its end is noticed.
        drop(program);
        let _ = spawned.send(pid);
        let guardian = Self { pid, link: Arc::new(link), command };
        match guardian.link.receive(Some(START_TIME)) {
            Received::Message(Message::Ready) => Ok(guardian),
            _ => {
                let _ = kill_process(pid, Signal::KILL);
                Err(io::Error::other("it did not begin"))
            }
        }
    }

    /// Has the guardian start the command, and report its state changes.
    fn start(&self, order: &Order, send: mpsc::UnboundedSender<Change>) -> io::Result<Pid> {
        let (first, started) = plain_mpsc::channel();
        let link = self.link.clone();
        Builder::new().name("tenure-link".into()).spawn(move || {
            while let Received::Message(message) = link.receive(None) {
                match change(message) {
                    Some(change) => report(change, &send),
                    None => drop(first.send(message)),
                }
            }
        })?;
        let (input, output, errors) = (io::stdin(), io::stdout(), io::stderr());
        self.link.send_order(order, [input.as_fd(), output.as_fd(), errors.as_fd()])?;
        match started.recv() {
            Ok(Message::Started(number)) => {
                let command = Pid::from_raw(number).ok_or(io::ErrorKind::InvalidData)?;
                let _ = self.command.send(command);
                Ok(command)
            }
            Ok(Message::Failed(number)) => Err(io::Error::from_raw_os_error(number)),
            _ => Err(io::Error::other("its guardian was killed before it reported the start")),
        }
    }
}

/// A stopped guardian would not notice the end of `tenure`.
fn keep_going(guardian: Pid, change: Change) {
    if let Change::Stopped(_) = change {
        let _ = kill_process(guardian, Signal::CONT);
    }
}

/// A state change of the command, as the guardian reports it.
fn change(message: Message) -> Option<Change> {
    Some(match message {
        Message::Stopped(signal) => Change::Stopped(Signal::from_named_raw(signal)),
        Message::Ended { status, signal } => {
            Change::Ended(Ending { status, signal: Signal::from_named_raw(signal.into()) })
        }
        Message::Overdue => Change::Overdue,
        _ => return None,
    })
}

fn follow_for(command: Pid, send: &mpsc::UnboundedSender<Change>) {
    follow(command, |change| report(change, send));
}

fn report(change: Change, send: &mpsc::UnboundedSender<Change>) {
    // Without a receiver, the command is not awaited any more.
    let _ = send.send(change);
}

fn start_alone(
    order: &Order,
    variables: &[(String, String)],
    send: mpsc::UnboundedSender<Change>,
) -> io::Result<Pid> {
    let (started_command, known) = plain_mpsc::channel();
    // The thread comes first: once the command runs, nothing may fail.
    Builder::new().name("tenure-child".into()).spawn(move || {
        known.into_iter().for_each(|command| follow_for(command, &send));
    })?;
    let command = Pid::from_child(&program::start(&order.command, variables)?);
    let _ = started_command.send(command);
    Ok(command)
}
