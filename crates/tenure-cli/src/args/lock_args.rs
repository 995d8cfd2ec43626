//! Which lock is acquired, and how.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tenure::{Error, Guard, Lock, Owner, Tenure, Wait};

use crate::args::patience::Patience;
use crate::args::replica_args::ReplicaArgs;
use crate::args::time::period;
use crate::args::wait_args::{Limit, WaitArgs};

/// Options of all subcommands that acquire a lock.
#[derive(Args)]
pub(crate) struct LockArgs {
    /// Share the lock with other holders that use -s: readers, where -x writes
    #[arg(short, long, conflicts_with_all = ["exclusive", "limit"])]
    shared: bool,
    /// Hold the lock alone, where other clients share it with -s
    #[arg(short = 'x', long, conflicts_with = "limit")]
    exclusive: bool,
    /// Allow N holders at once. The latest N counts
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    #[command(flatten)]
    wait_args: WaitArgs,
    /// How long the lock stays held if it is not renewed, for example because this machine has crashed
    #[arg(long, value_name = "TIME", value_parser = period, default_value = "30s")]
    pub(crate) lease: Duration,
    #[command(flatten)]
    replica_args: ReplicaArgs,
    /// A note that is shown with the holder
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

impl LockArgs {
    /// How long to try to reach the store, from now on.
    pub(crate) fn patience(&self, is_verbose: bool) -> Patience {
        self.wait_args.patience(is_verbose)
    }

    /// The lock of this name, as these options say, under an owner of its own.
    pub(crate) fn lock(&self, tenure: &Tenure, name: &str, owner: Owner) -> Lock {
        let lock = match self.limit {
            Some(limit) => tenure.semaphore(name, limit).permits(1),
            None if self.shared => tenure.rwlock(name).reader(),
            None if self.exclusive => tenure.rwlock(name).writer(),
            None => tenure.lock(name),
        };
        let lock = self.replica_args.lock(lock.lease(self.lease).owner(owner));
        match &self.note {
            Some(note) => lock.note(note),
            None => lock,
        }
    }

    /// The guard; or the exit status, if the lock was not acquired, which was reported.
    pub(crate) async fn acquire(
        &self,
        (name, lock, owner): (&str, &Lock, Owner),
        patience: &Patience,
        is_verbose: bool,
    ) -> Result<Guard, ExitCode> {
        let request = request(lock, self.wait_args.limit(patience));
        let is_me = |waiter: &tenure::WaiterInfo| waiter.owner == owner;
        self.wait_args.acquire((name, lock), request, is_me, (patience, is_verbose)).await
    }
}

/// The guard, or none if the lock is not free and is not to be waited for.
async fn request(lock: &Lock, limit: Limit) -> Result<Option<Guard>, Error> {
    match limit {
        Limit::Now => lock.try_acquire().await,
        Limit::Within(time) => lock.acquire_with(Wait::within(time)).await.map(Some),
        Limit::Forever => lock.acquire_with(Wait::forever()).await.map(Some),
    }
}
