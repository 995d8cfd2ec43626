//! The limits under which we run (`ulimit`): one that leaves too little is told, instead of ending us midway.

use std::fs::File;
use std::io;
use std::process::ExitCode;

use rustix::process::Signal;

use crate::exec::signals;
use crate::exit::Exit;

/// How many files we have open at once, at most, to hold a lock and to run a command.
const FILES: usize = 24;

/// Sees to it that we can work. An error is told already.
pub(crate) fn ensure() -> Result<(), ExitCode> {
    // A file that may not grow any more is an error for those who write to it, and not the end of us.
    signals::endure([Signal::XFSZ].into_iter()).map_err(|error| Exit::System.because(&error))?;
    let files: io::Result<Vec<_>> = (0..FILES).map(|_| File::open("/")).collect();
    files.map(drop).map_err(|error| {
        let need = format!("{FILES} open files besides those that it was started with");
        Exit::System.because(&format!("`tenure` needs {need} (see `ulimit -n`): {error}"))
    })
}
