//! The signals that a command would get if it ran by itself.

use std::future::poll_fn;
use std::io;
use std::process::ExitCode;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::terminal;

/// Catches signals from now on, until they are asked for.
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    pub(crate) fn catch() -> io::Result<Self> {
        let kinds = [
            (Signal::INT, SignalKind::interrupt()),
            (Signal::TERM, SignalKind::terminate()),
            (Signal::HUP, SignalKind::hangup()),
            (Signal::QUIT, SignalKind::quit()),
            (Signal::USR1, SignalKind::user_defined1()),
            (Signal::USR2, SignalKind::user_defined2()),
            (Signal::TSTP, SignalKind::from_raw(Signal::TSTP.as_raw())),
        ];
        let caught = kinds.into_iter().map(|(signal, kind)| Ok((signal, unix::signal(kind)?)));
        caught.collect::<io::Result<_>>().map(Self)
    }

    /// The exit status if we are asked to end while nothing has been started. Stopped, we are just
    /// that.
    pub(crate) async fn end(&mut self) -> ExitCode {
        loop {
            match self.next().await {
                Signal::TSTP => terminal::stop_job(),
                signal => return ExitCode::from(128 + signal.as_raw() as u8),
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
}
