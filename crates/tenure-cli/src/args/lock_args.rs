//! Which lock is wanted, and how.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tenure::{Error, Guard, Lock, Owner, Tenure, Wait};

use crate::args::patience::Patience;
use crate::args::time::{period, time};
use crate::exit::Exit;
use crate::view::format::{holders, in_sentence};
use crate::view::output::say;
use crate::view::waiting;

/// How long to look who has a lock, for somebody who has waited long enough.
const LOOK: Duration = Duration::from_millis(500);

/// How a lock is taken, for all commands that take one.
#[derive(Args)]
pub(crate) struct LockArgs {
    /// Share it with others that use -s: they read, and those with -x write
    #[arg(short, long, conflicts_with_all = ["exclusive", "limit"])]
    shared: bool,
    /// Alone, where others share it with -s
    #[arg(short = 'x', long, conflicts_with = "limit")]
    exclusive: bool,
    /// Let N hold it at once. The latest N counts
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
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
    /// How long the lock stays taken if nobody renews it, because this machine died for example
    #[arg(long, value_name = "TIME", value_parser = period, default_value = "30s")]
    pub(crate) lease: Duration,
    /// What others should know about it
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

impl LockArgs {
    /// How long to try to reach the store, from now on.
    pub(crate) fn patience(&self, is_verbose: bool) -> Patience {
        let time = if self.nonblock { Some(Duration::ZERO) } else { self.wait };
        Patience::new(time, is_verbose)
    }

    /// The lock of this name, as it is wanted, under an owner of its own.
    pub(crate) fn lock(&self, tenure: &Tenure, name: &str, owner: Owner) -> Lock {
        let lock = match self.limit {
            Some(limit) => tenure.semaphore(name, limit).permits(1),
            None if self.shared => tenure.rwlock(name).reader(),
            None if self.exclusive => tenure.rwlock(name).writer(),
            None => tenure.lock(name),
        };
        let lock = lock.lease(self.lease).owner(owner);
        match &self.note {
            Some(note) => lock.note(note),
            None => lock,
        }
    }

    /// The guard; or the exit status, and it was told why there is none. At a terminal, or if asked for,
    /// the wait is told as well.
    pub(crate) async fn acquire(
        &self,
        (name, lock, owner): (&str, &Lock, Owner),
        patience: &Patience,
        is_verbose: bool,
    ) -> Result<Guard, ExitCode> {
        let acquired = tokio::select! {
            acquired = self.ask(lock, patience) => acquired,
            never = waiting::tell(lock, |waiter| waiter.owner == owner, is_verbose) => never,
        };
        let is_over = match acquired {
            Ok(Some(guard)) => return Ok(guard),
            Ok(None) => None,
            Err(error) if Exit::of(&error) == Exit::NotAcquired => self.wait,
            Err(error) => return Err(patience.told(&error)),
        };
        // Meanwhile it may have become free, or the store have gone.
        let info = match tokio::time::timeout(LOOK, lock.inspect()).await {
            Ok(Ok(info)) => Some(info),
            Ok(Err(error)) if is_over.is_some() => return Err(patience.told(&error)),
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

    /// The guard, or none if the lock is taken and it is not to be waited for.
    async fn ask(&self, lock: &Lock, patience: &Patience) -> Result<Option<Guard>, Error> {
        if self.nonblock {
            return lock.try_acquire().await;
        }
        let wait = self.wait.map_or(Wait::forever(), |_| Wait::within(patience.left()));
        lock.acquire_with(wait).await.map(Some)
    }
}
