//! `tenure run`: a command under a lock.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tenure::{Guard, Lock, Tenure};

use crate::exit::Exit;
use crate::job::{Job, OnLost};
use crate::session::Session;
use crate::signals::Signals;
use crate::time::time;
use crate::voice::say;
use crate::wish::Wish;

/// Run a command while holding a lock
///
/// The exit status is the command's own; 128 and the signal if a signal ended it; 75 if the lock
/// was not acquired; 76 if it was lost, in which case the command is ended; 69 if the store cannot
/// be reached; 64 if the command line is wrong; 126 or 127 if the command cannot be run.
///
/// The command finds TENURE_NAME, TENURE_OWNER, TENURE_FENCE (a number that grows with every
/// holder) and TENURE_DEADLINE (until when the lock is held if it cannot be renewed, in
/// milliseconds since 1970) in its environment, and in TENURE_URL the store without its password.
/// Signals are passed on to it, and to all that it has started.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    wish: Wish,
    /// Keep the lock for at least TIME, also if the command ends sooner: for cron jobs on machines
    /// whose clocks differ
    #[arg(long, value_name = "TIME", value_parser = time)]
    at_least: Option<Duration>,
    /// Do nothing, with success, if the command has succeeded within TIME (24h at most)
    #[arg(long, value_name = "TIME", value_parser = time)]
    once_per: Option<Duration>,
    /// What to do when the lock is lost
    #[arg(long, value_enum, default_value_t = OnLost::Kill)]
    on_lost: OnLost,
    /// How long the command has to end itself when the lock is lost, before it is killed; a third
    /// of the lease at most
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "5s")]
    kill_after: Duration,
    #[command(flatten)]
    session: Session,
}

pub(crate) async fn run(arguments: Arguments) -> ExitCode {
    let acquire = async |tenure: &Tenure| acquire(tenure, &arguments).await;
    let hold = async |tenure: &Tenure, guard, signals: &mut Signals| {
        hold(tenure, guard, &arguments, signals).await
    };
    arguments.session.conduct(acquire, hold).await
}

async fn acquire(tenure: &Tenure, arguments: &Arguments) -> Result<Guard, ExitCode> {
    let mut lock: Lock = arguments.wish.lock(tenure, &arguments.session.name);
    if let Some(time) = arguments.at_least {
        lock = lock.at_least(time);
    }
    let guard = arguments.wish.acquire(&lock, &arguments.session.name).await?;
    // A hand-over is valid for a few seconds only, until it is confirmed.
    if guard.remaining() <= arguments.grace() {
        guard.renew().await.map_err(|error| Exit::of(&error).because(&error))?;
    }
    arguments.session.say(format_args!("holding `{}` with fence {}", guard.name(), guard.fence()));
    Ok(guard)
}

/// Runs the command, unless it is not due yet. An error if the lock was lost.
async fn hold(
    tenure: &Tenure,
    guard: Guard,
    arguments: &Arguments,
    signals: &mut Signals,
) -> Result<ExitCode, Exit> {
    let mark = arguments.once_per.map(|time| mark(tenure, guard.name().as_str(), time));
    if let Some(mark) = &mark {
        match mark.inspect().await {
            Ok(info) if info.is_free() => {}
            Ok(_) => {
                arguments.session.say(format_args!("done already: nothing to do"));
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) => return Ok(Exit::of(&error).because(&error)),
        }
    }
    let job = Job {
        command: &arguments.session.command,
        url: arguments.session.store.for_child(),
        on_lost: arguments.on_lost,
        grace: arguments.grace(),
    };
    let code = match job.run(&guard, signals).await? {
        Ok(code) => code,
        Err(told) => return Ok(told),
    };
    if let (Some(mark), 0) = (&mark, code) {
        // It stays until it is due again, whoever holds the lock meanwhile.
        if let Err(error) = mark.acquire().await.and_then(Guard::detach) {
            say(format_args!("it will run again too soon: {error}"));
        }
    }
    arguments.session.say(format_args!("releasing `{}`", guard.name()));
    Ok(ExitCode::from(code))
}

/// What stays taken for a while after a success.
fn mark(tenure: &Tenure, name: &str, time: Duration) -> Lock {
    tenure.lock(format!("tenure-once/{name}")).fixed_lease(time)
}

impl Arguments {
    /// How long the command has to end itself.
    fn grace(&self) -> Duration {
        self.kill_after.min(self.wish.lease / 3)
    }
}
