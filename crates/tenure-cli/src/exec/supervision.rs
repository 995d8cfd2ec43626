//! Supervises a running command: signals, the terminal, and the lock, which may be lost.

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
use crate::exec::link::{Link, Message, Moment};
use crate::exec::processes::Process;
use crate::exec::signals::Signals;
use crate::exec::{loss, process_tree, terminal};
use crate::view::output::say;

/// How often to check which processes have ended.
const POLL: Duration = Duration::from_millis(20);

/// How long a killed process takes to end. One that takes longer hangs in the kernel, or may not be killed.
const KILL_TIME: Duration = Duration::from_secs(5);

impl Job<'_> {
    /// Waits for the command, and forwards signals to it. When the lock is being lost, the command is ended.
    pub(crate) async fn supervise(
        &self,
        guard: &Guard,
        mut child: Child,
        signals: &mut Signals,
    ) -> Outcome {
        let link = child.link().filter(|_| self.on_lost == OnLost::Kill);
        tokio::select! {
            ended = self.attend(guard, &mut child, signals) => return ended,
            // A quarter more: killed processes need some time to end, also on a busy machine.
            () = guard.runs_out(self.grace * 5 / 4), if self.on_lost != OnLost::Ignore => {}
            never = report_deadline(link.as_deref(), guard) => match never {},
        }
        // The store is asked for the reason concurrently: the command's end does not wait for it.
        if self.on_lost == OnLost::Warn {
            let attend = self.attend(guard, &mut child, signals);
            return match tokio::join!(loss::report(self.tenure, guard), attend).1 {
                Outcome::Ended(ending) => Outcome::EndedWithout(ending),
                outcome => outcome,
            };
        }
        if let Some(link) = link {
            let last = guard.remaining().max(self.grace);
            link.send(Message::Ending(Moment::now().after(last)));
        }
        tokio::join!(loss::report(self.tenure, guard), self.end(guard, &mut child, signals));
        Outcome::Lost
    }

    /// Forwards signals to the command until it ends.
    async fn attend(&self, guard: &Guard, child: &mut Child, signals: &mut Signals) -> Outcome {
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
                    // Usually the command itself has ended, and there is no orphan.
                    Signal::CHILD => has_orphans = true,
                    // The command has the terminal, and another process of the shell's job used it.
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
                () = pause(POLL), if has_orphans => {
                    has_orphans = false;
                    process_tree::reap_orphans(&child.own());
                }
            }
        }
    }

    /// The command was stopped. If it used the terminal, it gets it. If it was stopped by the terminal, so is the whole
    /// job. Otherwise another process stopped the command alone.
    fn stopped(&self, guard: &Guard, child: &mut Child, signals: &Signals, signal: Option<Signal>) {
        let wants_terminal = matches!(signal, Some(Signal::TTIN | Signal::TTOU));
        // It may have the terminal by now.
        if wants_terminal
            && (terminal::give(child.process_tree.group)
                || terminal::is_with(child.process_tree.group))
        {
            child.resume_with_terminal();
            return;
        }
        let is_of_terminal = signal.is_some_and(terminal::stops) && terminal::is_there();
        // It may have been continued meanwhile.
        if !child.is_stopped() || (!is_of_terminal && !terminal::is_with(child.process_tree.group))
        {
            return;
        }
        if terminal::can_stop_job() {
            self.halt(guard, child, signals);
        } else if !wants_terminal {
            // No shell would continue this job.
            child.process_tree.signal(Signal::CONT);
        }
    }

    /// Stops the command and this process, until the job is continued. The lock is not renewed meanwhile.
    fn halt(&self, guard: &Guard, child: &mut Child, signals: &Signals) {
        let halted = child.halt();
        signals.stop_job();
        if self.on_lost == OnLost::Kill && guard.is_lost() {
            // Another client may hold the lock by now: the command must not run on.
            child.process_tree.signal_all(Signal::KILL);
        } else {
            child.resume(&halted);
        }
    }

    /// Ends the process tree: by TERM, and by KILL when the grace time or the lease is over.
    async fn end(&self, guard: &Guard, child: &mut Child, signals: &mut Signals) {
        let is_over = |lost: &Lost| lost.why() == WhyLost::LeaseEnded;
        let held = guard.ensure_held();
        if !held.as_ref().is_err_and(is_over) {
            child.process_tree.signal_all(Signal::TERM);
            // A stopped process does not end.
            child.process_tree.signal_all(Signal::CONT);
            tokio::select! {
                () = ended(child, signals) => return,
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
                pause(POLL / 4).await;
            }
        };
        let _ = tokio::time::timeout(KILL_TIME, killed).await;
        let _ = tokio::time::timeout(KILL_TIME, ended(child, signals)).await;
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

/// Waits until all processes of the tree have ended. Signals are forwarded, and stopped processes continued.
async fn ended(child: &mut Child, signals: &mut Signals) {
    while !child.has_ended() || !child.process_tree.has_ended(true) {
        tokio::select! {
            change = child.next(), if !child.has_ended() => match change {
                Change::Ended(ending) => child.conclude(ending),
                Change::Stopped(_) => child.process_tree.signal(Signal::CONT),
                Change::Overdue => {}
            },
            signal = signals.next() => match signal {
                Signal::CHILD => process_tree::reap_orphans(&child.own()),
                signal if terminal::stops(signal) => {}
                signal => child.forward(signal),
            },
            () = pause(POLL) => {}
        }
    }
}

/// Reports to the guardian until when the lock is held, repeatedly.
async fn report_deadline(link: Option<&Link>, guard: &Guard) -> Infallible {
    let Some(link) = link else { return pending().await };
    loop {
        let left = guard.remaining();
        link.send(Message::Held(Moment::now().after(left)));
        pause((left / 8).max(POLL / 4)).await;
    }
}
