//! `tenure run`: a command under a lock.

use std::ffi::OsString;
use std::fmt::Display;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tenure::{Error, Guard, Lock, Tenure, Wait};
use tokio::process::{Child, Command};

use crate::exit::{self, Exit};

/// How long to wait for the release before the command ends; the lease ends it otherwise.
const RELEASE_TIME: Duration = Duration::from_secs(5);

/// Run a command while holding a lock
///
/// The exit status is the command's own; 128 and the signal if a signal ended it; 75 if the lock
/// was not acquired; 76 if it was lost, in which case the command is killed; 69 if the store cannot
/// be reached; 64 if the command line is wrong; 126 or 127 if the command cannot be run.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Do not wait: fail if the lock is not free
    #[arg(short, long)]
    nonblock: bool,
    /// Wait for at most TIME, such as 10s, 500ms or 2m
    #[arg(short, long, value_name = "TIME", value_parser = time, conflicts_with = "nonblock")]
    wait: Option<Duration>,
    /// The exit status if the lock is not acquired
    #[arg(short = 'E', long, value_name = "NUMBER", default_value_t = Exit::NotAcquired as u8)]
    conflict_exit_code: u8,
    /// How long the lock stays taken if this machine dies; renewed while the command runs
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "30s")]
    lease: Duration,
    /// What others should know about it
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// The store, such as redis://host, or rediss://host for TLS; `memory:` keeps out nobody but this very command
    #[arg(long, env = "TENURE_URL", hide_env_values = true, default_value = "memory:")]
    url: String,
    /// The name of the lock
    name: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) async fn run(arguments: Arguments) -> ExitCode {
    let tenure = match Tenure::connect(&arguments.url).await {
        Ok(tenure) => tenure,
        Err(error) => return Exit::of(&error).because(&error),
    };
    let guard = match acquire(&tenure, &arguments).await {
        Ok(Some(guard)) => guard,
        Ok(None) => return conflict(&arguments, &"the lock is held by another"),
        Err(error) if Exit::of(&error) == Exit::NotAcquired => return conflict(&arguments, &error),
        Err(error) => return Exit::of(&error).because(&error),
    };
    let code = match spawn(&guard, &arguments) {
        Ok(child) => supervise(&guard, child).await,
        Err(error) => cannot_run(&arguments, &error),
    };
    drop(guard);
    tenure.flush(RELEASE_TIME).await;
    code
}

fn conflict(arguments: &Arguments, why: &impl Display) -> ExitCode {
    eprintln!("tenure: {why}");
    ExitCode::from(arguments.conflict_exit_code)
}

async fn acquire(tenure: &Tenure, arguments: &Arguments) -> Result<Option<Guard>, Error> {
    let mut lock: Lock = tenure.lock(arguments.name.as_str()).lease(arguments.lease);
    if let Some(note) = &arguments.note {
        lock = lock.note(note);
    }
    if arguments.nonblock {
        return lock.try_acquire().await;
    }
    let wait = arguments.wait.map_or(Wait::forever(), Wait::within);
    lock.acquire_with(wait).await.map(Some)
}

fn spawn(guard: &Guard, arguments: &Arguments) -> io::Result<Child> {
    let (program, rest) = arguments.command.split_first().expect("clap requires a command");
    Command::new(program)
        .args(rest)
        .env("TENURE_NAME", guard.name().as_str())
        .env("TENURE_OWNER", guard.owner().to_string())
        .env("TENURE_FENCE", guard.fence().to_string())
        // It may hold a password, and the child has no need of it.
        .env_remove("TENURE_URL")
        .spawn()
}

/// Waits for the child; kills it if the lock is lost first.
async fn supervise(guard: &Guard, mut child: Child) -> ExitCode {
    tokio::select! {
        status = child.wait() => match status {
            Ok(status) => exit::of_child(status),
            Err(error) => Exit::CannotRun.because(&error),
        },
        lost = guard.lost() => {
            // Gone already is as good as killed.
            let _ = child.kill().await;
            Exit::Lost.because(&lost)
        }
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

/// A time such as `10s`, `500ms`, `2m`, `1h`; a bare number counts seconds.
fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time: write it like 500ms, 10s, 2m or 1h");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "s" | "" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_people_write_them() {
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(time("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(time("1h"), Ok(Duration::from_secs(3600)));
        for bad in ["", "s", "10 s", "10x", "-1s", "1e3s", "."] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
