//! What the command says: data on standard output, talk on standard error.
//!
//! Neither may end it in a panic, because a command that runs under a lock must be looked after
//! also when nobody listens any more.

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
    /// For programs: JSON, as docs/cli.md describes it
    #[arg(long)]
    json: bool,
}

impl Form {
    /// Prints it for people, or for programs: one object on one line.
    pub(crate) fn print(
        &self,
        for_people: impl FnOnce() -> String,
        for_programs: impl FnOnce() -> Value,
    ) -> Result<(), ExitCode> {
        print(if self.json { format!("{}\n", for_programs()) } else { for_people() })
    }
}

/// Whether help and usage are coloured: never on a terminal that does not understand it, also where
/// the variable CI promises that colours are seen.
pub(crate) fn colour() -> ColorChoice {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    if is_dumb { ColorChoice::Never } else { ColorChoice::Auto }
}

/// Prints data. An error, already told, if they cannot be printed.
pub(crate) fn print(data: impl AsRef<[u8]>) -> Result<(), ExitCode> {
    let mut output = io::stdout().lock();
    let written = output.write_all(data.as_ref()).and_then(|()| output.flush());
    written.map_err(|error| match error.kind() {
        // The reader has seen enough, as `head` has. Ended as the signal would end it, without a
        // word.
        io::ErrorKind::BrokenPipe => Exit::BrokenPipe.into(),
        _ => Exit::CannotWrite.because(&format!("could not write to standard output: {error}")),
    })
}

/// Whether what is printed goes nowhere because standard output is closed: then it is /dev/null by
/// now, open for reading as well, which no shell's redirection is.
pub(crate) fn is_unheard() -> bool {
    let is_null = fstat(io::stdout()).is_ok_and(|it| it.st_rdev == makedev(1, 3));
    is_null && fcntl_getfl(io::stdout()).is_ok_and(|flags| flags.contains(OFlags::RDWR))
}

/// How many columns what is printed may have; none where no terminal shows it.
pub(crate) fn columns() -> Option<u16> {
    let output = io::stdout();
    let size = output.is_terminal().then(|| tcgetwinsize(output).ok())??;
    Some(size.ws_col).filter(|columns| *columns > 0)
}

/// Whether talk is shown at a terminal.
pub(crate) fn is_seen() -> bool {
    io::stderr().is_terminal()
}

/// Says something to people, without waiting until they listen: a pipe that nobody reads is full at
/// some time, and a command that runs under a lock must be looked after then, too.
pub(crate) fn say(what: impl Display) {
    let sentence = format!("tenure: {}\n", plain(what));
    match SPEAKER.get_or_init(speaker) {
        // It lives as long as we do.
        Some(speaker) => drop(speaker.send(Talk::Sentence(sentence))),
        None => utter(&sentence),
    }
}

/// Waits until everything has been said, but not for ever.
pub(crate) fn finish() {
    if let Some(Some(speaker)) = SPEAKER.get() {
        let (said, all) = mpsc::channel();
        let _ = speaker.send(Talk::End(said));
        let _ = all.recv_timeout(PATIENCE);
    }
}

/// How long to wait for people to listen, when there is nothing else to do.
const PATIENCE: Duration = Duration::from_secs(1);

static SPEAKER: OnceLock<Option<mpsc::Sender<Talk>>> = OnceLock::new();

enum Talk {
    Sentence(String),
    End(mpsc::Sender<()>),
}

/// A thread that speaks; none where there cannot be another.
fn speaker() -> Option<mpsc::Sender<Talk>> {
    let (speaker, talk) = mpsc::channel();
    let speak = move || {
        for talk in talk {
            match talk {
                Talk::Sentence(sentence) => utter(&sentence),
                Talk::End(said) => drop(said.send(())),
            }
        }
    };
    std::thread::Builder::new().name("tenure-output".into()).spawn(speak).ok()?;
    Some(speaker)
}

/// What cannot be said is not worth dying for.
fn utter(sentence: &str) {
    if terminal::bears_talk(io::stderr()) {
        let _ = io::stderr().write_all(sentence.as_bytes());
    }
}
