//! `tenure run`: a command under a lock.

use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use rustix::process::Signal;
use tenure::{Guard, Lock, Tenure};

use crate::child::Child;
use crate::exit::Exit;
use crate::signals::Signals;
use crate::store::Store;
use crate::time::time;
use crate::wish::Wish;

/// How long to wait for the release before the command ends; the lease ends it otherwise.
const RELEASE_TIME: Duration = Duration::from_secs(5);

/// Run a command while holding a lock
///
/// The exit status is the command's own; 128 and the signal if a signal ended it; 75 if the lock
/// was not acquired; 76 if it was lost, in which case the command is ended; 69 if the store cannot
/// be reached; 64 if the command line is wrong; 126 or 127 if the command cannot be run.
///
/// The command finds TENURE_NAME, TENURE_OWNER, TENURE_FENCE (a number that grows with every holder) and
/// TENURE_DEADLINE (until when the lock is held if it cannot be renewed, in milliseconds since 1970)
/// in its environment. Signals are passed on to it, and to all that it has started.
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
    /// How long the command has to end itself when the lock is lost, before it is killed; a third of
    /// the lease at most
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "5s")]
    kill_after: Duration,
    /// Say what happens, on standard error
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    store: Store,
    /// The name of the lock
    name: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnLost {
    /// End the command, and all that it has started, before another can have the lock
    Kill,
    /// Say so, and let it go on
    Warn,
    /// Let it go on
    Ignore,
}

pub(crate) async fn run(arguments: Arguments) -> ExitCode {
    // First of all: from now on, no signal is missed.
    let mut signals = match Signals::catch() {
        Ok(signals) => signals,
        Err(error) => return Exit::Unavailable.because(&error),
    };
    let tenure = match arguments.store.connect().await {
        Ok(tenure) => tenure,
        Err(error) => return Exit::of(&error).because(&error),
    };
    let code = tokio::select! {
        guard = acquire(&tenure, &arguments) => match guard {
            Ok(guard) => hold(&tenure, guard, &arguments, &mut signals).await,
            Err(code) => Ok(code),
        },
        // Asked to end while it waits: nothing has been started.
        signal = signals.next() => Ok(ExitCode::from(128 + signal.as_raw() as u8)),
    };
    match code {
        Ok(code) => {
            tenure.flush(RELEASE_TIME).await;
            code
        }
        // There is nothing to release, and perhaps nobody to tell.
        Err(lost) => lost.into(),
    }
}

async fn acquire(tenure: &Tenure, arguments: &Arguments) -> Result<Guard, ExitCode> {
    let mut lock: Lock = arguments.wish.lock(tenure, &arguments.name);
    if let Some(time) = arguments.at_least {
        lock = lock.at_least(time);
    }
    let conflict = |why: &str| {
        eprintln!("tenure: {why}");
        ExitCode::from(arguments.wish.conflict_exit_code)
    };
    match arguments.wish.acquire(&lock).await {
        Ok(Some(guard)) => {
            // A hand-over is valid for a few seconds only, until it is confirmed.
            if guard.remaining() <= arguments.grace()
                && let Err(error) = guard.renew().await
            {
                return Err(Exit::of(&error).because(&error));
            }
            arguments.say(format_args!("holding `{}` with fence {}", guard.name(), guard.fence()));
            Ok(guard)
        }
        Ok(None) => {
            Err(conflict(&format!("`{}` is held by another", arguments.name.escape_debug())))
        }
        Err(error) if Exit::of(&error) == Exit::NotAcquired => Err(conflict(&error.to_string())),
        Err(error) => Err(Exit::of(&error).because(&error)),
    }
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
                arguments.say(format_args!("done already: nothing to do"));
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) => return Ok(Exit::of(&error).because(&error)),
        }
    }
    let code = match start(&guard, arguments) {
        Ok(child) => supervise(&guard, child, arguments, signals).await?,
        Err(error) => return Ok(cannot_run(arguments, &error)),
    };
    if let (Some(mark), 0) = (&mark, code) {
        // It stays until it is due again, whoever holds the lock meanwhile.
        if let Err(error) = mark.acquire().await.and_then(Guard::detach) {
            eprintln!("tenure: it will run again too soon: {error}");
        }
    }
    arguments.say(format_args!("releasing `{}`", guard.name()));
    Ok(ExitCode::from(code))
}

/// What stays taken for a while after a success.
fn mark(tenure: &Tenure, name: &str, time: Duration) -> Lock {
    tenure.lock(format!("tenure-once/{name}")).fixed_lease(time)
}

#[expect(clippy::disallowed_methods, reason = "told to the command, by the calendar")]
fn now() -> SystemTime {
    SystemTime::now()
}

fn start(guard: &Guard, arguments: &Arguments) -> io::Result<Child> {
    let (program, rest) = arguments.command.split_first().expect("clap requires a command");
    let deadline = now() + guard.remaining();
    let deadline = deadline.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis());
    let mut command = Command::new(program);
    command
        .args(rest)
        .env("TENURE_NAME", guard.name().as_str())
        .env("TENURE_OWNER", guard.owner().to_string())
        .env("TENURE_FENCE", guard.fence().to_string())
        .env("TENURE_DEADLINE", deadline.to_string())
        // It may hold a password, and the child has no need of it.
        .env_remove("TENURE_URL");
    Child::start(&mut command)
}

/// Waits for the command, and passes signals on to it. When the lock is being lost, it is ended.
async fn supervise(
    guard: &Guard,
    mut child: Child,
    arguments: &Arguments,
    signals: &mut Signals,
) -> Result<u8, Exit> {
    let grace = arguments.grace();
    tokio::select! {
        code = accompany(&mut child, signals) => return Ok(code),
        () = guard.runs_out(grace), if arguments.on_lost != OnLost::Ignore => {}
    }
    let name = guard.name();
    eprintln!("tenure: `{name}` is being lost: it was not renewed in time, or taken away");
    if arguments.on_lost == OnLost::Warn {
        return Ok(accompany(&mut child, signals).await);
    }
    child.signal(Signal::TERM);
    // A stopped process does not end.
    child.signal(Signal::CONT);
    if tokio::time::timeout(grace, accompany(&mut child, signals)).await.is_err() {
        child.signal(Signal::KILL);
        accompany(&mut child, signals).await;
    }
    // What it has started may have outlived it.
    child.signal(Signal::KILL);
    Err(Exit::Lost)
}

/// Passes signals on to the command until it ends; its status.
async fn accompany(child: &mut Child, signals: &mut Signals) -> u8 {
    loop {
        let signal = tokio::select! {
            code = child.end() => return code,
            signal = signals.next() => signal,
        };
        child.signal(signal);
    }
}

fn cannot_run(arguments: &Arguments, error: &io::Error) -> ExitCode {
    let program = arguments.command[0].display();
    let exit = match error.kind() {
        io::ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::CannotRun,
    };
    exit.because(&format!("could not run `{program}`: {error}"))
}

impl Arguments {
    /// How long the command has to end itself.
    fn grace(&self) -> Duration {
        self.kill_after.min(self.wish.lease / 3)
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        if self.verbose {
            eprintln!("tenure: {what}");
        }
    }
}
