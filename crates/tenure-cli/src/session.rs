//! What every command that runs another has: its arguments, its signals, its store, and an orderly
//! end.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tenure::Tenure;

use crate::exit::Exit;
use crate::signals::Signals;
use crate::store::Store;
use crate::voice::say;

/// How long to wait for the release before the command ends; the lease ends it otherwise.
const RELEASE_TIME: Duration = Duration::from_secs(5);

/// How long to wait until a queue is left; whoever does not ask again is soon passed over.
const LEAVE_TIME: Duration = Duration::from_secs(1);

/// What is to be run, under which name, and where.
#[derive(Args)]
pub(crate) struct Session {
    /// Say what happens, on standard error
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    pub(crate) store: Store,
    /// What the command runs under: the lock, or the election
    pub(crate) name: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl Session {
    /// Acquires something, and does something with it. Either may end early with an exit status that
    /// has been told; or the lock was lost: then there is nothing to release, and perhaps nobody to
    /// tell.
    pub(crate) async fn conduct<T>(
        &self,
        acquire: impl AsyncFnOnce(&Tenure) -> Result<T, ExitCode>,
        hold: impl AsyncFnOnce(&Tenure, T, &mut Signals) -> Result<ExitCode, Exit>,
    ) -> ExitCode {
        let (tenure, mut signals) = match self.open().await {
            Ok(opened) => opened,
            Err(code) => return code,
        };
        let acquired = tokio::select! {
            acquired = acquire(&tenure) => acquired,
            code = signals.end() => Err(code),
        };
        let (code, time) = match acquired {
            Err(code) => (code, LEAVE_TIME),
            Ok(acquired) => match hold(&tenure, acquired, &mut signals).await {
                Ok(code) => (code, RELEASE_TIME),
                Err(lost) => return lost.into(),
            },
        };
        // What goes on in the background.
        tenure.flush(time).await;
        code
    }

    async fn open(&self) -> Result<(Tenure, Signals), ExitCode> {
        // First of all: from now on, no signal is missed.
        let signals = Signals::catch().map_err(|error| Exit::Unavailable.because(&error))?;
        let tenure = self.store.connect().await?;
        // Killed, we leave the lock to the command for its lease.
        tenure.bequeath().map_err(|error| Exit::of(&error).because(&error))?;
        Ok((tenure, signals))
    }

    /// Says what happens, if somebody wants to know.
    pub(crate) fn say(&self, what: std::fmt::Arguments<'_>) {
        if self.verbose {
            say(what);
        }
    }
}
