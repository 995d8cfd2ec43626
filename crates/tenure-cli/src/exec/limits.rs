//! Resource limits (`ulimit`): one that leaves too little is reported at the start, instead of failing midway.

use std::fs::File;
use std::io;
use std::process::ExitCode;

use rustix::process::Signal;

use crate::exec::signals;
use crate::exit::Exit;

/// How many files are open at once, at most, to hold a lock and to run a command.
const FILES: usize = 24;

/// Checks that the limits suffice. An error is reported already.
pub(crate) fn ensure() -> Result<(), ExitCode> {
    // A file at its size limit (`ulimit -f`) is to be a write error, not a signal that ends the process.
    signals::survive([Signal::XFSZ].into_iter()).map_err(|error| Exit::System.because(&error))?;
    let files: io::Result<Vec<_>> = (0..FILES).map(|_| File::open("/")).collect();
    files.map(drop).map_err(|error| {
        let need = format!("{FILES} open files besides those that it was started with");
        Exit::System.because(&format!("`tenure` needs {need} (see `ulimit -n`): {error}"))
    })
}
