//! What the command says: data on standard output, talk on standard error.
//!
//! Neither may end it in a panic, because a command that runs under a lock must be looked after
//! also when nobody listens any more.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, ColorChoice};
use serde_json::Value;

use crate::exit::Exit;
use crate::words::plain;

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

/// Says something to people. What cannot be said is not worth dying for.
pub(crate) fn say(what: impl Display) {
    let _ = writeln!(io::stderr(), "tenure: {}", plain(what));
}
