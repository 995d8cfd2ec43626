//! What every command that runs another has: its signals, its store, and an orderly end.

use std::process::ExitCode;
use std::time::Duration;

use tenure::Tenure;

use crate::exit::Exit;
use crate::signals::Signals;
use crate::store::Store;

/// How long to wait for the release before the command ends; the lease ends it otherwise.
const RELEASE_TIME: Duration = Duration::from_secs(5);

/// How long to wait until a queue is left; whoever does not ask again is soon passed over.
const LEAVE_TIME: Duration = Duration::from_secs(1);

pub(crate) struct Session {
    pub(crate) signals: Signals,
    pub(crate) tenure: Tenure,
}

impl Session {
    pub(crate) async fn open(store: &Store) -> Result<Self, ExitCode> {
        // First of all: from now on, no signal is missed.
        let signals = Signals::catch().map_err(|error| Exit::Unavailable.because(&error))?;
        let tenure = store.connect().await?;
        // Killed, we leave the lock to the command for its lease.
        tenure.bequeath().map_err(|error| Exit::of(&error).because(&error))?;
        Ok(Self { signals, tenure })
    }

    /// Nothing was acquired, and this is told instead.
    pub(crate) async fn leave(self, code: ExitCode) -> ExitCode {
        self.tenure.flush(LEAVE_TIME).await;
        code
    }

    /// Waits for what goes on in the background, unless the lock was lost: then there is nothing to
    /// release, and perhaps nobody to tell.
    pub(crate) async fn close(self, code: Result<ExitCode, Exit>) -> ExitCode {
        match code {
            Ok(code) => {
                self.tenure.flush(RELEASE_TIME).await;
                code
            }
            Err(lost) => lost.into(),
        }
    }
}
