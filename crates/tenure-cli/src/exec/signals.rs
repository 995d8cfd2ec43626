//! The signals that are caught for the command.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::exec::terminal;

/// Catches signals, and queues them until they are received.
pub(crate) struct Signals {
    caught: Vec<(Signal, unix::Signal)>,
    /// A CONT arrived that was not received yet: set at once by the handler, not in the order of events.
    is_continued: Arc<AtomicBool>,
}

/// The forwarded signals, and those of the terminal that stop a job.
pub(crate) const CAUGHT: [Signal; 11] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::CONT,
    Signal::TSTP,
    Signal::TTIN,
    Signal::TTOU,
];

impl Signals {
    pub(crate) fn catch() -> io::Result<Self> {
        let is_continued = Arc::default();
        signal_hook::flag::register(Signal::CONT.as_raw(), Arc::clone(&is_continued))?;
        let wanted = not_ignored(CAUGHT.into_iter());
        // An ignored signal, as HUP under nohup, stays ignored, also in the command. But with CHLD ignored, the status of
        // children would be lost.
        let caught = wanted.chain([Signal::CHILD]).map(|signal| {
            let kind = SignalKind::from_raw(signal.as_raw());
            Ok((signal, unix::signal(kind)?))
        });
        let caught = caught.collect::<io::Result<_>>()?;
        Ok(Self { caught, is_continued })
    }

    /// Stops the shell's job until it is continued, unless that has happened already: a shell continues a job as soon as
    /// its script has stopped, and a stop after that would last.
    pub(crate) fn stop_job(&self) {
        if !self.is_continued.load(Ordering::Acquire) {
            terminal::stop_job();
        }
    }

    /// The signal that ends a wait, before a command was started. A stop signal stops the job.
    pub(crate) async fn end(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::CHILD | Signal::CONT | Signal::WINCH => {}
                signal if !terminal::stops(signal) => return signal,
                _ if terminal::can_stop_job() => self.stop_job(),
                _ => {}
            }
        }
    }

    /// The next signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, caught) in &mut self.caught {
                if let Poll::Ready(Some(())) = caught.poll_recv(context) {
                    if *signal == Signal::CONT {
                        self.is_continued.store(false, Ordering::Release);
                    }
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Drops pending stop signals that came before a CONT, as the kernel does.
    pub(crate) fn forget_stops(&mut self) {
        let stops = self.caught.iter_mut().filter(|(signal, _)| terminal::stops(*signal));
        let mut context = Context::from_waker(Waker::noop());
        for (_, caught) in stops {
            let _ = caught.poll_recv(&mut context);
        }
    }
}

/// Survives these signals, without changing them for started programs: an ignored signal would be inherited, a caught
/// one is not.
pub(crate) fn survive(signals: impl Iterator<Item = Signal>) -> io::Result<()> {
    for signal in not_ignored(signals) {
        signal_hook::flag::register(signal.as_raw(), Arc::default())?;
    }
    Ok(())
}

fn not_ignored(signals: impl Iterator<Item = Signal>) -> impl Iterator<Item = Signal> {
    let ignored = ignored();
    signals.filter(move |signal| ignored >> (signal.as_raw() - 1) & 1 == 0)
}

/// The signals that are ignored since the start: bit n - 1 stands for signal n. None if /proc is missing.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
