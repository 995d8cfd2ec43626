//! The command that runs: in a process group of its own, so that all of it can be ended, with a guardian
//! that outlives us, and with the terminal when it needs it, so that it can be worked with.

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
use crate::exec::link::{Heard, Link, Order, Word};
use crate::exec::process_tree::{self, ProcessTree};
use crate::exec::processes::Process;
use crate::exec::{guardian, program, terminal};
use crate::view::output::say;

/// How long a guardian takes to be there at most.
const BIRTH: Duration = Duration::from_secs(10);

/// A command that was started.
pub(crate) struct Child {
    pub(crate) process_tree: ProcessTree,
    guardian: Option<Guardian>,
    changes: mpsc::UnboundedReceiver<Change>,
    /// It was told to stop at the terminal, and did not so far.
    is_to_stop: bool,
    has_ended: bool,
}

/// The process that outlives us.
struct Guardian {
    pid: Pid,
    link: Arc<Link>,
    /// To the thread that follows it: the command, which is ours to follow if the guardian is killed.
    command: plain_mpsc::Sender<Pid>,
}

impl Child {
    /// Starts a command with these variables.
    pub(crate) fn start(order: &Order, variables: &[(String, String)]) -> io::Result<Self> {
        let strangers = process_tree::children();
        process_tree::adopt_orphans();
        let (tell, changes) = mpsc::unbounded_channel();
        let guardian = Guardian::call(variables, tell.clone()).inspect_err(|error| {
            say(format_args!(
                "the command has no guardian ({error}): if `tenure` is killed, it may outlive its lock"
            ));
        });
        let guardian = guardian.ok();
        let command = match &guardian {
            Some(guardian) => guardian.start(order, tell).inspect_err(|_| {
                // Killed before it could tell, it may have started the command.
                ProcessTree::of(guardian.pid, Some(guardian.pid), strangers.clone()).kill();
            })?,
            None => start_alone(order, variables, tell)?,
        };
        let process_tree = ProcessTree::of(command, guardian.as_ref().map(|it| it.pid), strangers);
        Ok(Self { process_tree, guardian, changes, is_to_stop: false, has_ended: false })
    }

    /// What the guardian is told, if there is one.
    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        self.guardian.as_ref().map(|guardian| guardian.link.clone())
    }

    /// Those whose end is told here.
    pub(crate) fn own(&self) -> Vec<Pid> {
        let guardian = self.guardian.as_ref().map(|guardian| guardian.pid);
        guardian.into_iter().chain([self.process_tree.group]).collect()
    }

    /// Passes a signal on. One that is stopped could not end if it is asked to.
    pub(crate) fn forward(&mut self, signal: Signal) {
        self.is_to_stop |= signal == Signal::TSTP;
        self.process_tree.signal(signal);
        if matches!(signal, Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT) {
            self.process_tree.signal(Signal::CONT);
        }
    }

    /// It was stopped because it wanted the terminal, and has it now. Continuing it undoes the ^Z that
    /// came while it was stopped; so that comes once more.
    pub(crate) fn go_on_with_terminal(&mut self) {
        self.process_tree.signal(Signal::CONT);
        if std::mem::take(&mut self.is_to_stop) {
            self.process_tree.signal(Signal::TSTP);
        }
    }

    /// Stops all of it. Those who were not stopped before, besides its group.
    pub(crate) fn halt(&self) -> Vec<Process> {
        self.process_tree.signal(Signal::STOP);
        let strays = self.process_tree.strays().into_iter().filter(|one| !one.is_stopped);
        strays.filter(|one| one.send(Signal::STOP).is_ok()).collect()
    }

    /// Whether it is stopped now.
    pub(crate) fn is_stopped(&self) -> bool {
        self.process_tree
            .living()
            .iter()
            .any(|one| one.pid == self.process_tree.group && one.is_stopped)
    }

    /// Continues what was stopped.
    pub(crate) fn go_on(&mut self, halted: &[Process]) {
        self.is_to_stop = false;
        self.process_tree.signal(Signal::CONT);
        for one in halted {
            let _ = one.send(Signal::CONT);
        }
    }

    /// What becomes of it next. Dropped in between, nothing is lost.
    pub(crate) async fn next(&mut self) -> Change {
        self.changes.recv().await.unwrap_or(Change::Ended(Ending::UNKNOWN))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// It has ended: the terminal comes back, with what was typed there.
    pub(crate) fn conclude(&mut self, ending: Ending) {
        self.has_ended = true;
        let had_terminal = terminal::take(self.process_tree.group);
        if let (true, Some(signal @ (Signal::INT | Signal::QUIT))) = (had_terminal, ending.signal) {
            terminal::tell_job(signal);
        }
    }
}

impl Drop for Guardian {
    /// Nothing is left for it to do. It goes first, so that nothing of ours is open when we have ended.
    fn drop(&mut self) {
        self.link.say(Word::Farewell);
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }
}

impl Guardian {
    /// Starts one: this program, under another name. It is ready for an order.
    fn call(
        variables: &[(String, String)],
        tell: mpsc::UnboundedSender<Change>,
    ) -> io::Result<Self> {
        let (link, theirs) = Link::pair()?;
        let (command, known) = plain_mpsc::channel();
        let (born, birth) = plain_mpsc::channel();
        // Before any process: once one is there, nothing may fail.
        Builder::new().name("tenure-child".into()).spawn(move || {
            birth.into_iter().for_each(|guardian| {
                follow(guardian, |change| keep_going(guardian, change));
                // Killed, it has left the command to us.
                known.iter().for_each(|command| follow_for(command, &tell));
            });
        })?;
        let mut program = Command::new("/proc/self/exe");
        program.arg0(guardian::NAME).envs(variables.iter().map(|(name, value)| (name, value)));
        program.stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let pid = Pid::from_child(&program.spawn()?);
        // Closed here, so that its end is heard.
        drop(program);
        let _ = born.send(pid);
        let guardian = Self { pid, link: Arc::new(link), command };
        match guardian.link.hear(Some(BIRTH)) {
            Heard::Word(Word::Ready) => Ok(guardian),
            _ => {
                let _ = kill_process(pid, Signal::KILL);
                Err(io::Error::other("it did not begin"))
            }
        }
    }

    /// Lets it start the command, and tell what becomes of that.
    fn start(&self, order: &Order, tell: mpsc::UnboundedSender<Change>) -> io::Result<Pid> {
        let (first, started) = plain_mpsc::channel();
        let link = self.link.clone();
        Builder::new().name("tenure-link".into()).spawn(move || {
            while let Heard::Word(word) = link.hear(None) {
                match change(word) {
                    Some(change) => pass(change, &tell),
                    None => drop(first.send(word)),
                }
            }
        })?;
        let (input, output, errors) = (io::stdin(), io::stdout(), io::stderr());
        self.link.order(order, [input.as_fd(), output.as_fd(), errors.as_fd()])?;
        match started.recv() {
            Ok(Word::Started(number)) => {
                let command = Pid::from_raw(number).ok_or(io::ErrorKind::InvalidData)?;
                let _ = self.command.send(command);
                Ok(command)
            }
            Ok(Word::Failed(number)) => Err(io::Error::from_raw_os_error(number)),
            _ => Err(io::Error::other("its guardian was killed before it could tell")),
        }
    }
}

/// A guardian that is stopped could not see our end.
fn keep_going(guardian: Pid, change: Change) {
    if let Change::Stopped(_) = change {
        let _ = kill_process(guardian, Signal::CONT);
    }
}

/// What a guardian tells of the command.
fn change(word: Word) -> Option<Change> {
    Some(match word {
        Word::Stopped(signal) => Change::Stopped(Signal::from_named_raw(signal)),
        Word::Ended { status, signal } => {
            Change::Ended(Ending { status, signal: Signal::from_named_raw(signal.into()) })
        }
        Word::Overdue => Change::Overdue,
        _ => return None,
    })
}

fn follow_for(command: Pid, tell: &mpsc::UnboundedSender<Change>) {
    follow(command, |change| pass(change, tell));
}

fn pass(change: Change, tell: &mpsc::UnboundedSender<Change>) {
    // Without a listener, all is over.
    let _ = tell.send(change);
}

fn start_alone(
    order: &Order,
    variables: &[(String, String)],
    tell: mpsc::UnboundedSender<Change>,
) -> io::Result<Pid> {
    let (know, known) = plain_mpsc::channel();
    // Before the command: once that runs, nothing may fail.
    Builder::new().name("tenure-child".into()).spawn(move || {
        known.into_iter().for_each(|command| follow_for(command, &tell));
    })?;
    let command = Pid::from_child(&program::start(&order.command, variables)?);
    let _ = know.send(command);
    Ok(command)
}
