//! `tenure run`: a command under a lock.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tenure::{Error, Guard, Lock, Owner, Released, Tenure};
use tenure_serve::shape::RECORDS;

use crate::args::lock_args::LockArgs;
use crate::args::patience::Patience;
use crate::args::time::{record_time, time};
use crate::exec::job::{Job, OnLost, Outcome};
use crate::exec::session::{End, Session};
use crate::exec::signals::Signals;
use crate::exit::Exit;
use crate::view::format::holding;
use crate::view::help;
use crate::view::output::say;

/// Run a command while holding a lock
///
/// If `tenure` is killed, its guardian ends the command before the lease is over; on a `local:` store the command goes on,
/// with the lock. Signals are forwarded to the command and its process group.
///
/// TENURE_FENCE grows with every holder: send it along with every write. TENURE_DEADLINE is the time until which the
/// lock was held when the command began, in milliseconds since 1970.
#[derive(Args)]
#[command(override_usage = "tenure run [OPTIONS] <NAME> -- <COMMAND>...
       tenure run [OPTIONS] -c <LINE> <NAME>",
    after_long_help = help::RUN)]
pub(crate) struct Arguments {
    #[command(flatten)]
    lock_args: LockArgs,
    /// Keep the lock for at least TIME, also if the command ends sooner: for cron jobs on machines
    /// whose clocks differ
    #[arg(long, value_name = "TIME", value_parser = time)]
    at_least: Option<Duration>,
    /// Do nothing, with success, if the command has succeeded within TIME (365d at most)
    #[arg(long, value_name = "TIME", value_parser = record_time)]
    once_per: Option<Duration>,
    /// What to do when the lock is lost
    #[arg(long, value_enum, default_value_t = OnLost::Kill)]
    on_lost: OnLost,
    /// The time between TERM and KILL when the lock is lost; a third of the lease at most
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "5s")]
    kill_after: Duration,
    #[command(flatten)]
    session: Session,
}

pub(crate) async fn run(arguments: Arguments) -> ExitCode {
    let patience = arguments.lock_args.patience(arguments.session.verbose);
    let acquire = async |tenure: &Tenure| acquire(tenure, &arguments, &patience).await;
    let hold = async |tenure: &Tenure, guard, signals: &mut Signals| {
        hold(tenure, guard, &arguments, signals).await
    };
    arguments.session.run(&patience, acquire, hold).await
}

async fn acquire(
    tenure: &Tenure,
    arguments: &Arguments,
    patience: &Patience,
) -> Result<Guard, ExitCode> {
    let success_record = arguments.success_record(tenure);
    let checked = patience.retry(async || is_done(success_record.as_ref()).await).await;
    if checked.map_err(|error| patience.report(&error))? {
        return Err(arguments.nothing_to_do());
    }
    let (name, owner) = (&*arguments.session.name, Owner::new());
    let mut lock: Lock = arguments.lock_args.lock(tenure, name, owner);
    if let Some(time) = arguments.at_least {
        lock = lock.at_least(time);
    }
    let wanted = (name, &lock, owner);
    let guard = arguments.lock_args.acquire(wanted, patience, arguments.session.verbose).await?;
    // Otherwise the claim lease of a hand-over would soon end.
    guard.confirm().await.map_err(|error| Exit::report(&error))?;
    arguments.session.say(format_args!("{}", holding(&guard)));
    Ok(guard)
}

/// Runs the command, unless it is not due yet.
async fn hold(tenure: &Tenure, guard: Guard, arguments: &Arguments, signals: &mut Signals) -> End {
    let held = (guard.name().clone(), guard.owner());
    let job = Job {
        tenure,
        command: &arguments.session.command(),
        url: arguments.session.store.for_child(),
        on_lost: arguments.on_lost,
        grace: arguments.grace(),
    };
    let success_record = arguments.success_record(tenure);
    // Another process may have succeeded while this one waited.
    let outcome = match is_done(success_record.as_ref()).await {
        Ok(false) => job.run(&guard, signals).await,
        Ok(true) => Outcome::NotStarted(arguments.nothing_to_do()),
        Err(error) => Outcome::NotStarted(Exit::report(&error)),
    };
    if let (Some(time), Some(0)) = (arguments.once_per, outcome.status()) {
        // Another holder of a shared lock may have just recorded its success.
        let recorded = tokio::select! {
            recorded = tenure.record(arguments.record(), time) => recorded.map_err(|it| it.to_string()),
            _ = signals.end() => Err("interrupted".to_owned()),
        };
        // The record outlives this process, so its holder stays described.
        tenure.clone().leave_registered();
        if let Err(why) = recorded {
            say(format_args!(
                "could not record the success for --once-per; the command may run again early: {why}"
            ));
        }
    }
    if matches!(outcome, Outcome::NotStarted(_)) {
        return job.conclude(outcome, &held, release_now(tenure, guard)).await;
    }
    if matches!(outcome, Outcome::Ended(_)) {
        arguments.session.say(format_args!("releasing `{}`", held.0));
    }
    if arguments.at_least.is_some() {
        // The lock may outlive this process, so its holder stays described.
        tenure.clone().leave_registered();
    }
    job.conclude(outcome, &held, guard.release()).await
}

/// Releases a lock under which no command ran: without its least time.
async fn release_now(tenure: &Tenure, guard: Guard) -> Result<Released, Error> {
    tenure.release(&guard.detach().await?).await
}

/// Whether the command has succeeded within the time of `--once-per`.
async fn is_done(success_record: Option<&Lock>) -> Result<bool, Error> {
    let Some(success_record) = success_record else { return Ok(false) };
    Ok(!success_record.inspect().await?.is_free())
}

impl Arguments {
    /// The name of the record of a success.
    fn record(&self) -> String {
        format!("{RECORDS}{}", self.session.name)
    }

    /// The record of a success, to be inspected.
    fn success_record(&self, tenure: &Tenure) -> Option<Lock> {
        self.once_per.map(|_| tenure.lock(self.record()))
    }

    fn nothing_to_do(&self) -> ExitCode {
        self.session.say(format_args!("done already: nothing to do"));
        ExitCode::SUCCESS
    }

    /// The time between TERM and KILL.
    fn grace(&self) -> Duration {
        self.kill_after.min(self.lock_args.lease / 3)
    }
}
