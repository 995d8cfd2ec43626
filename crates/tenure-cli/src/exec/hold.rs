//! `tenure hold`: a lock for the rest of a shell script.
//!
//! The command substitution of `eval "$(tenure hold NAME)"` must end while the lock is held. So this process
//! starts another one, the [holder](super::holder), which acquires the lock, and passes its output on: shell code
//! that exports the lock's variables. Whatever fails, it prints code that fails with the same status, because
//! `eval ""` succeeds.

use std::fmt::Write;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, Stdio};

use clap::Args;
use rustix::fs::fstat;
use rustix::process::{Pid, Signal, kill_process};
use tenure::Handle;
use tokio::sync::oneshot;

use crate::args::lock_args::LockArgs;
use crate::args::store::{self, Store};
use crate::exec::job::OnLost;
use crate::exec::processes::Process;
use crate::exec::signals::Signals;
use crate::exec::{holder, shell};
use crate::exit::{Exit, interrupted};
use crate::view::format::fence;
use crate::view::help;
use crate::view::output::{print, say};

/// Hold a lock until the shell ends: eval "$(tenure hold NAME)"
///
/// Prints shell code that exports TENURE_NAME, TENURE_OWNER, TENURE_FENCE and TENURE_HANDLE. A process in the
/// background holds and renews the lock until the shell that evaluates the code ends, however it ends, or until
/// `tenure release "$TENURE_HANDLE"`. If the lock is not acquired, the code fails with the exit status that
/// `tenure hold` itself has, so that `|| exit` behind it works.
#[derive(Args)]
#[command(after_long_help = help::HOLD)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) lock_args: LockArgs,
    /// What to do with the shell when the lock is lost
    #[arg(long, value_enum, default_value_t = OnLost::Kill)]
    pub(crate) on_lost: OnLost,
    /// Report each step on standard error
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) store: Store,
    /// The name of the lock
    pub(crate) name: String,
}

/// Starts a holder, and prints its shell code.
pub(crate) async fn hold() -> ExitCode {
    let shell = match shell::find() {
        Ok(Some(shell)) => shell,
        Ok(None) => {
            let why = "no shell reads the code on standard output: write eval \"$(tenure hold NAME)\", with no other \
                       program between";
            say(why);
            return fail(Exit::Usage as u8);
        }
        Err(error) => {
            say(error);
            return fail(Exit::System as u8);
        }
    };
    let started = Signals::catch().and_then(|signals| Ok((signals, start(&shell)?)));
    match started {
        Ok((signals, child)) => pass_on(child, signals).await,
        Err(error) => {
            say(error);
            fail(Exit::System as u8)
        }
    }
}

/// Prints shell code that fails with this status, and returns it.
pub(crate) fn fail(status: u8) -> ExitCode {
    match print(format!("(exit {status})\n")) {
        Ok(()) => ExitCode::from(status),
        Err(code) => code,
    }
}

/// The code that a shell evaluates when the lock is held.
pub(crate) fn code(handle: &Handle, url: Option<&str>) -> String {
    let mut code = String::from("export");
    let variables = [
        ("TENURE_NAME", handle.name().as_str().to_owned()),
        ("TENURE_OWNER", handle.owner().to_string()),
        ("TENURE_HANDLE", handle.to_string()),
    ];
    let fence = fence(handle.fence()).map(|fence| ("TENURE_FENCE", fence.to_string()));
    let url = url.map(|url| (store::VARIABLE, url.to_owned()));
    for (name, value) in variables.into_iter().chain(fence).chain(url) {
        let _ = write!(code, " {name}='{}'", value.replace('\'', r"'\''"));
    }
    code + "\n"
}

fn start(shell: &Process) -> io::Result<Child> {
    let (number, started) = shell.identity();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(holder::NAME).args(std::env::args_os().skip(1));
    command.env(holder::SHELL, format!("{number}:{started}"));
    // The holder reads no data: the end of its standard input is our end.
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    // With `2>&1` its messages would keep the command substitution open.
    let file = |it: io::Result<(u64, u64)>| it.ok();
    if file(id(io::stdout())) == file(id(io::stderr())) {
        command.stderr(Stdio::null());
    }
    command.spawn()
}

fn id(file: impl std::os::fd::AsFd) -> io::Result<(u64, u64)> {
    let stat = fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Waits until the holder has printed its code and closed its output, and prints it.
async fn pass_on(mut child: Child, mut signals: Signals) -> ExitCode {
    let read = reader(&mut child);
    let output = tokio::select! {
        output = read => output.unwrap_or_default(),
        // The holder sees our end, and leaves the queue.
        signal = signals.end() => {
            let code = fail(128 + signal.as_raw() as u8);
            return if signal == Signal::INT { interrupted() } else { code };
        }
    };
    if output.is_empty() {
        let status = child.wait();
        let number = |status: std::process::ExitStatus| {
            status.code().or(status.signal().map(|signal| 128 + signal))
        };
        let number = status.ok().and_then(number).and_then(|it| u8::try_from(it).ok());
        return fail(number.filter(|it| *it != 0).unwrap_or(Exit::System as u8));
    }
    match print(output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(code) => {
            // No shell evaluates the code: the holder releases the lock.
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
            let _ = child.wait();
            code
        }
    }
}

fn reader(child: &mut Child) -> oneshot::Receiver<Vec<u8>> {
    let (send, read) = oneshot::channel();
    if let Some(mut output) = child.stdout.take() {
        // Without a thread the sender is dropped, and nothing was read.
        let _ = std::thread::Builder::new().name("tenure-hold".into()).spawn(move || {
            let mut bytes = Vec::new();
            let _ = output.read_to_end(&mut bytes);
            let _ = send.send(bytes);
        });
    }
    read
}
