//! Looking after a command while it runs: signals, the terminal, and the lock, which may be lost.

use std::collections::HashSet;
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use rustix::process::Signal;
use tenure::{Guard, Lost, WhyLost};

use crate::args::time::pause;
use crate::exec::changes::Change;
use crate::exec::child::Child;
use crate::exec::job::{Job, OnLost, Outcome};
use crate::exec::link::{Link, Moment, Word};
use crate::exec::processes::Process;
use crate::exec::signals::Signals;
use crate::exec::{loss, process_tree, terminal};
use crate::view::output::say;

/// How often to look who has ended.
const LOOK: Duration = Duration::from_millis(20);

/// How long a process takes to end when it is killed. One that takes longer hangs in the kernel, or may not
/// be killed.
const DEATH: Duration = Duration::from_secs(5);

impl Job<'_> {
    /// Waits for the command, and passes signals on to it. When the lock is being lost, it is
    /// ended.
    pub(crate) async fn supervise(
        &self,
        guard: &Guard,
        mut child: Child,
        signals: &mut Signals,
    ) -> Outcome {
        let link = child.link().filter(|_| self.on_lost == OnLost::Kill);
        tokio::select! {
            ended = self.accompany(guard, &mut child, signals) => return ended,
            // A quarter more: what is killed needs a moment to end, also on a busy machine.
            () = guard.runs_out(self.grace * 5 / 4), if self.on_lost != OnLost::Ignore => {}
            never = reassure(link.as_deref(), guard) => match never {},
        }
        // What the store knows about it is asked meanwhile: nothing waits for it.
        if self.on_lost == OnLost::Warn {
            let accompany = self.accompany(guard, &mut child, signals);
            return match tokio::join!(loss::report(self.tenure, guard), accompany).1 {
                Outcome::Ended(ending) => Outcome::EndedWithout(ending),
                outcome => outcome,
            };
        }
        if let Some(link) = link {
            let last = guard.remaining().max(self.grace);
            link.say(Word::Ending(Moment::now().after(last)));
        }
        tokio::join!(loss::report(self.tenure, guard), self.end(guard, &mut child, signals));
        Outcome::Lost
    }

    /// Passes signals on to the command until it ends.
    async fn accompany(&self, guard: &Guard, child: &mut Child, signals: &mut Signals) -> Outcome {
        let (mut has_orphans, mut is_overdue) = (false, false);
        loop {
            tokio::select! {
                change = child.next() => match change {
                    Change::Ended(ending) => {
                        child.conclude(ending);
                        return if is_overdue { Outcome::Lost } else { Outcome::Ended(ending) };
                    }
                    Change::Stopped(signal) => self.stopped(guard, child, signals, signal),
                    Change::Overdue => {
                        is_overdue = true;
                        let name = guard.name();
                        say(format_args!("`{name}` is being lost: it was not renewed in time"));
                    }
                },
                signal = signals.next() => match signal {
                    // Most often it is the command itself that has ended, and nobody need be looked for.
                    Signal::CHILD => has_orphans = true,
                    // The command has the terminal, and somebody else in our job wanted it.
                    Signal::TTIN | Signal::TTOU if terminal::can_stop_job() => {
                        self.halt(guard, child, signals);
                    }
                    Signal::TTIN | Signal::TTOU => {}
                    Signal::CONT => {
                        signals.forget_stops();
                        child.forward(Signal::CONT);
                    }
                    signal => child.forward(signal),
                },
                () = pause(LOOK), if has_orphans => {
                    has_orphans = false;
                    process_tree::forget_orphans(&child.own());
                }
            }
        }
    }

    /// The command was stopped. If it is the terminal that it wants, it gets it. If it was stopped
    /// there, so is the whole job. Otherwise it is somebody's business with the command alone.
    fn stopped(&self, guard: &Guard, child: &mut Child, signals: &Signals, signal: Option<Signal>) {
        let wants_terminal = matches!(signal, Some(Signal::TTIN | Signal::TTOU));
        // It may have got it since.
        if wants_terminal
            && (terminal::give(child.process_tree.group)
                || terminal::is_with(child.process_tree.group))
        {
            child.go_on_with_terminal();
            return;
        }
        let is_of_terminal = signal.is_some_and(terminal::stops) && terminal::is_there();
        // Continued meanwhile, it goes on.
        if !child.is_stopped() || (!is_of_terminal && !terminal::is_with(child.process_tree.group))
        {
            return;
        }
        if terminal::can_stop_job() {
            self.halt(guard, child, signals);
        } else if !wants_terminal {
            // Nobody would continue us, nor it.
            child.process_tree.signal(Signal::CONT);
        }
    }

    /// Stops the command and us, until the job is continued. Nobody renews the lock meanwhile.
    fn halt(&self, guard: &Guard, child: &mut Child, signals: &Signals) {
        let halted = child.halt();
        signals.stop_job();
        if self.on_lost == OnLost::Kill && guard.is_lost() {
            // Another may have it by now: not one more step.
            child.process_tree.signal_all(Signal::KILL);
        } else {
            child.go_on(&halted);
        }
    }

    /// Ends the command and all that it has started: first by asking, and by force when the time
    /// for that is over, or the lease.
    async fn end(&self, guard: &Guard, child: &mut Child, signals: &mut Signals) {
        let is_over = |lost: &Lost| lost.why() == WhyLost::LeaseEnded;
        let held = guard.ensure_held();
        if !held.as_ref().is_err_and(is_over) {
            child.process_tree.signal_all(Signal::TERM);
            // A stopped process does not end.
            child.process_tree.signal_all(Signal::CONT);
            tokio::select! {
                () = gone(child, signals) => return,
                () = pause(self.grace) => {}
                _ = guard.lost(), if held.is_ok() => {}
            }
        }
        let mut refused = HashSet::new();
        let killed = async {
            while !child.process_tree.has_ended(false) {
                for one in child.process_tree.kill() {
                    if refused.insert(one.identity()) {
                        say_alive(&one, "it runs as another user, who alone may end it");
                    }
                }
                pause(LOOK / 4).await;
            }
        };
        let _ = tokio::time::timeout(DEATH, killed).await;
        let _ = tokio::time::timeout(DEATH, gone(child, signals)).await;
        for one in child.process_tree.living() {
            if !refused.contains(&one.identity()) {
                say_alive(&one, "it was killed, and hangs in the kernel");
            }
        }
    }
}

fn say_alive(one: &Process, why: &str) {
    let Process { pid, program, .. } = one;
    let pid = pid.as_raw_nonzero();
    say(format_args!(
        "process {pid} (`{program}`) could not be ended: {why}; it may go on working without the lock"
    ));
}

/// Waits until the command has ended, and all that it has started. Signals are passed on; it is not
/// left stopped.
async fn gone(child: &mut Child, signals: &mut Signals) {
    while !child.has_ended() || !child.process_tree.has_ended(true) {
        tokio::select! {
            change = child.next(), if !child.has_ended() => match change {
                Change::Ended(ending) => child.conclude(ending),
                Change::Stopped(_) => child.process_tree.signal(Signal::CONT),
                Change::Overdue => {}
            },
            signal = signals.next() => match signal {
                Signal::CHILD => process_tree::forget_orphans(&child.own()),
                signal if terminal::stops(signal) => {}
                signal => child.forward(signal),
            },
            () = pause(LOOK) => {}
        }
    }
}

/// Lets the guardian know again and again until when the lock is held.
async fn reassure(link: Option<&Link>, guard: &Guard) -> Infallible {
    let Some(link) = link else { return pending().await };
    loop {
        let left = guard.remaining();
        link.say(Word::Held(Moment::now().after(left)));
        pause((left / 8).max(LOOK / 4)).await;
    }
}
