//! How long a lock is waited for, and the exit status if it is not acquired.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tenure::{Error, Lock, WaiterInfo};

use crate::args::patience::Patience;
use crate::args::time::time;
use crate::exit::Exit;
use crate::view::format::{holders, in_sentence};
use crate::view::output::say;
use crate::view::waiting;

/// How long to ask for the holder's name after the wait has ended.
const INSPECT_TIME: Duration = Duration::from_millis(500);

#[derive(Args)]
pub(crate) struct WaitArgs {
    /// Do not wait: fail if it is not free, or the store cannot be reached
    #[arg(short, long)]
    nonblock: bool,
    /// Wait for at most TIME, such as 10s, 500ms, 2m or 1h30m, also for a store that cannot be
    /// reached
    #[arg(short, long, value_name = "TIME", value_parser = time, conflicts_with = "nonblock")]
    wait: Option<Duration>,
    /// The exit status if the lock is not acquired
    #[arg(short = 'E', long, value_name = "NUMBER", default_value_t = Exit::NotAcquired as u8)]
    conflict_exit_code: u8,
}

/// How long one request waits.
pub(crate) enum Limit {
    /// Not at all.
    Now,
    Within(Duration),
    Forever,
}

impl WaitArgs {
    /// How long to try to reach the store, from now on.
    pub(crate) fn patience(&self, is_verbose: bool) -> Patience {
        Patience::new(self.time(), is_verbose)
    }

    /// The same without a limit, unless the caller has set one.
    pub(crate) fn endless_patience(&self, is_verbose: bool) -> Patience {
        Patience::new(Some(self.time().unwrap_or(Duration::MAX)), is_verbose)
    }

    fn time(&self) -> Option<Duration> {
        if self.nonblock { Some(Duration::ZERO) } else { self.wait }
    }

    pub(crate) fn limit(&self, patience: &Patience) -> Limit {
        match self.wait {
            _ if self.nonblock => Limit::Now,
            Some(_) => Limit::Within(patience.left()),
            None => Limit::Forever,
        }
    }

    /// The result of a request that waits; or the exit status, if the lock was not acquired, which was reported. At
    /// a terminal, or if asked for, the wait is shown.
    pub(crate) async fn acquire<T>(
        &self,
        (name, lock): (&str, &Lock),
        request: impl Future<Output = Result<Option<T>, Error>>,
        is_me: impl Fn(&WaiterInfo) -> bool,
        (patience, is_verbose): (&Patience, bool),
    ) -> Result<T, ExitCode> {
        let acquired = tokio::select! {
            acquired = request => acquired,
            never = waiting::show(lock, is_me, is_verbose) => never,
        };
        let is_over = match acquired {
            Ok(Some(acquired)) => return Ok(acquired),
            Ok(None) => None,
            Err(error) if Exit::of(&error) == Exit::NotAcquired => self.wait,
            Err(error) => return Err(patience.report(&error)),
        };
        // Meanwhile the lock may have become free, or the store unreachable.
        let info = match tokio::time::timeout(INSPECT_TIME, lock.inspect()).await {
            Ok(Ok(info)) => Some(info),
            Ok(Err(error)) if is_over.is_some() => return Err(patience.report(&error)),
            Ok(Err(_)) | Err(_) => None,
        };
        let why = match is_over {
            Some(time) => format!("`{name}` was not free within {}", in_sentence(time)),
            None => format!("`{name}` is not free"),
        };
        let held = info.as_ref().and_then(holders).map(|held| format!(": held by {held}"));
        say(why + &held.unwrap_or_default());
        Err(ExitCode::from(self.conflict_exit_code))
    }
}
