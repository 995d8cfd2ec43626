//! The signals that a command would get if it ran by itself.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::terminal;

/// Catches signals from now on, until they are asked for.
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

/// Those that are passed on, and those of the terminal that stop a job.
const CAUGHT: [Signal; 10] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::CONT,
    Signal::TSTP,
    Signal::TTIN,
    Signal::TTOU,
];

impl Signals {
    pub(crate) fn catch() -> io::Result<Self> {
        let ignored = ignored();
        let wanted = CAUGHT.into_iter().filter(|signal| ignored >> (signal.as_raw() - 1) & 1 == 0);
        // What is ignored, as under nohup, stays so, and the command inherits it. But if nobody waited for
        // children here, their status would be lost.
        let caught = wanted.chain([Signal::CHILD]).map(|signal| {
            let kind = SignalKind::from_raw(signal.as_raw());
            Ok((signal, unix::signal(kind)?))
        });
        caught.collect::<io::Result<_>>().map(Self)
    }

    /// The signal by which we are asked to end while nothing has been started. Stopped, we are just
    /// that.
    pub(crate) async fn end(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::CHILD | Signal::CONT => {}
                signal if !terminal::stops(signal) => return signal,
                _ if terminal::can_stop_job() => terminal::stop_job(),
                _ => {}
            }
        }
    }

    /// The next one. Dropped in between, none is lost.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, caught) in &mut self.0 {
                if let Poll::Ready(Some(())) = caught.poll_recv(context) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Forgets what was to stop us before we were continued, as the kernel does.
    pub(crate) fn forget_stops(&mut self) {
        let stops = self.0.iter_mut().filter(|(signal, _)| terminal::stops(*signal));
        let mut context = Context::from_waker(Waker::noop());
        for (_, caught) in stops {
            let _ = caught.poll_recv(&mut context);
        }
    }
}

/// The signals that whoever started us wants ignored: bit n - 1 stands for signal n. Where there is
/// no way to know, none.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
