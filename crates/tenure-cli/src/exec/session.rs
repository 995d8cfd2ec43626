//! Common to `run` and `elect`: arguments, signals, the connection to the store, and an orderly end.

use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use rustix::process::Signal;
use tenure::Tenure;

use crate::args::patience::Patience;
use crate::args::store::Store;
use crate::args::time::{delay, pause};
use crate::exec::signals::Signals;
use crate::exit::{Exit, interrupted};
use crate::view::about;
use crate::view::format::for_people;
use crate::view::output::say;

/// How long to wait until the queue was left; a waiter that does not poll is soon dropped.
const LEAVE_TIME: Duration = Duration::from_secs(1);

/// The command, the lock's name, and the store.
#[derive(Args)]
pub(crate) struct Session {
    /// Report each step on standard error
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) store: Store,
    /// Wait for a random time below TIME before the first request: for cron jobs that start on many machines at once
    #[arg(long, value_name = "TIME", value_parser = delay)]
    jitter: Option<Duration>,
    /// Run LINE with /bin/sh, as `flock -c` does, instead of a COMMAND
    #[arg(short = 'c', long = "command", value_name = "LINE")]
    line: Option<OsString>,
    /// The name of the lock, or of the election
    pub(crate) name: String,
    /// The command and its arguments
    #[arg(
        last = true,
        required_unless_present = "line",
        conflicts_with = "line",
        value_name = "COMMAND"
    )]
    words: Vec<OsString>,
}

impl Session {
    /// The command and its arguments.
    pub(crate) fn command(&self) -> Vec<OsString> {
        match &self.line {
            Some(line) => vec!["/bin/sh".into(), "-c".into(), line.clone()],
            None => self.words.clone(),
        }
    }

    /// Acquires a lock or a leadership, and uses it. `acquire` may end early with an exit status, whose reason was
    /// reported.
    pub(crate) async fn run<T>(
        &self,
        patience: &Patience,
        acquire: impl AsyncFnOnce(&Tenure) -> Result<T, ExitCode>,
        hold: impl AsyncFnOnce(&Tenure, T, &mut Signals) -> End,
    ) -> ExitCode {
        // Catch signals before anything else, so that none is missed.
        let signals = Signals::catch();
        let end = match signals {
            Ok(mut signals) => self.run_with(patience, acquire, hold, &mut signals).await,
            Err(error) => End::Status(Exit::System.because(&error)),
        };
        match end {
            End::Status(code) => code,
            End::Interrupted => interrupted(),
            End::Lost => Exit::Lost.into(),
        }
    }

    async fn run_with<T>(
        &self,
        patience: &Patience,
        acquire: impl AsyncFnOnce(&Tenure) -> Result<T, ExitCode>,
        hold: impl AsyncFnOnce(&Tenure, T, &mut Signals) -> End,
        signals: &mut Signals,
    ) -> End {
        if let Some(jitter) = self.jitter
            && let Err(end) = before_signals(signals, self.delay(jitter)).await
        {
            return end;
        }
        patience.restart();
        let about = about::of_command(&self.command());
        let tenure = match before_signals(signals, self.store.reach(&about, patience)).await {
            Ok(tenure) => tenure,
            Err(end) => return end,
        };
        match before_signals(signals, acquire(&tenure)).await {
            Ok(acquired) => hold(&tenure, acquired, signals).await,
            Err(end) => leave_queue(&tenure, end).await,
        }
    }

    /// Waits for a random time up to this one.
    async fn delay(&self, jitter: Duration) -> Result<(), ExitCode> {
        // The keys of a hasher are random, by the operating system.
        let random = RandomState::new().build_hasher().finish();
        let delay = jitter.mul_f64(random as f64 / u64::MAX as f64);
        self.say(format_args!("waiting for {} (--jitter)", for_people(delay)));
        pause(delay).await;
        Ok(())
    }

    /// Reports a step, with `--verbose`.
    pub(crate) fn say(&self, what: std::fmt::Arguments<'_>) {
        if self.verbose {
            say(what);
        }
    }
}

/// How it ends.
pub(crate) enum End {
    /// With this status.
    Status(ExitCode),
    /// By ^C.
    Interrupted,
    /// The lock was lost: there is nothing to release.
    Lost,
}

impl End {
    /// As a command that was ended by a signal, or not.
    pub(crate) fn of(status: u8, signal: Option<Signal>) -> Self {
        match signal {
            Some(Signal::INT) => Self::Interrupted,
            _ => Self::Status(ExitCode::from(status)),
        }
    }
}

/// Ends after the queue was left, which goes on in the background.
pub(crate) async fn leave_queue(tenure: &Tenure, end: End) -> End {
    tenure.flush(LEAVE_TIME).await;
    end
}

/// The first of the two: the result of a future, or a signal that ends us.
pub(crate) async fn before_signals<T>(
    signals: &mut Signals,
    future: impl Future<Output = Result<T, ExitCode>>,
) -> Result<T, End> {
    tokio::select! {
        result = future => result.map_err(End::Status),
        signal = signals.end() => Err(End::of(128 + signal.as_raw() as u8, Some(signal))),
    }
}
