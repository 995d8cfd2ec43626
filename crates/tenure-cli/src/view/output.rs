//! Output: data on standard output, messages on standard error.
//!
//! Neither may panic or block, because a command that runs under a lock must be supervised also if the output is not
//! read.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use clap::{Args, ColorChoice};
use rustix::fs::{OFlags, fcntl_getfl, fstat, makedev};
use rustix::termios::tcgetwinsize;
use serde_json::Value;

use crate::exec::terminal;
use crate::exit::Exit;
use crate::view::format::plain;

/// How data is printed.
#[derive(Args)]
pub(crate) struct Form {
    /// Print JSON for programs, as docs/cli.md describes it
    #[arg(long)]
    json: bool,
}

impl Form {
    /// Prints text for users, or one JSON object on one line for programs.
    pub(crate) fn print(
        &self,
        for_people: impl FnOnce() -> String,
        for_programs: impl FnOnce() -> Value,
    ) -> Result<(), ExitCode> {
        print(if self.json { format!("{}\n", for_programs()) } else { for_people() })
    }
}

/// Whether help and usage are coloured: never on a terminal without colours, also where the variable CI promises them.
pub(crate) fn colour() -> ColorChoice {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    if is_dumb { ColorChoice::Never } else { ColorChoice::Auto }
}

/// Prints data. An error is reported already.
pub(crate) fn print(data: impl AsRef<[u8]>) -> Result<(), ExitCode> {
    let mut output = io::stdout().lock();
    let written = output.write_all(data.as_ref()).and_then(|()| output.flush());
    written.map_err(|error| match error.kind() {
        // The reader has ended, as `head` does. The status is that of SIGPIPE, without a message.
        io::ErrorKind::BrokenPipe => Exit::BrokenPipe.into(),
        _ => Exit::CannotWrite.because(&format!("could not write to standard output: {error}")),
    })
}

/// Whether standard output was closed at the start: then it is /dev/null by now, open for reading as well, which no
/// shell's redirection is.
pub(crate) fn is_closed() -> bool {
    let is_null = fstat(io::stdout()).is_ok_and(|it| it.st_rdev == makedev(1, 3));
    is_null && fcntl_getfl(io::stdout()).is_ok_and(|flags| flags.contains(OFlags::RDWR))
}

/// The columns of the terminal that shows the output; none if it is no terminal.
pub(crate) fn columns() -> Option<u16> {
    let output = io::stdout();
    let size = output.is_terminal().then(|| tcgetwinsize(output).ok())??;
    Some(size.ws_col).filter(|columns| *columns > 0)
}

/// Whether messages are shown at a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Writes a message to standard error, without blocking: a pipe that is not read is full at some time, and a command
/// that runs under a lock must be supervised then, too.
pub(crate) fn say(what: impl Display) {
    let message = format!("tenure: {}\n", plain(what));
    match WRITER.get_or_init(writer) {
        // The thread lives as long as the process.
        Some(writer) => drop(writer.send(Output::Message(message))),
        None => write_message(&message),
    }
}

/// Waits until all messages are written, with a time limit.
pub(crate) fn finish() {
    if let Some(Some(writer)) = WRITER.get() {
        let (done, all) = mpsc::channel();
        let _ = writer.send(Output::Flush(done));
        let _ = all.recv_timeout(FLUSH_TIME);
    }
}

/// How long to wait for a full pipe at the end.
const FLUSH_TIME: Duration = Duration::from_secs(1);

static WRITER: OnceLock<Option<mpsc::Sender<Output>>> = OnceLock::new();

enum Output {
    Message(String),
    Flush(mpsc::Sender<()>),
}

/// The thread that writes messages; none if the operating system refuses a thread.
fn writer() -> Option<mpsc::Sender<Output>> {
    let (writer, queue) = mpsc::channel();
    let write = move || {
        for queue in queue {
            match queue {
                Output::Message(message) => write_message(&message),
                Output::Flush(done) => drop(done.send(())),
            }
        }
    };
    std::thread::Builder::new().name("tenure-output".into()).spawn(write).ok()?;
    Some(writer)
}

/// A write error has no remedy here.
fn write_message(message: &str) {
    if terminal::allows_output(io::stderr()) {
        let _ = io::stderr().write_all(message.as_bytes());
    }
}
