//! Starting a program as a shell does.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::fs::{Access, access};
use rustix::io::Errno;

/// Starts a program with its arguments, and with these variables besides the inherited ones, in a process group of its own.
pub(crate) fn start(format: &[OsString], variables: &[(String, String)]) -> io::Result<Child> {
    let (program, rest) = format.split_first().ok_or(Errno::INVAL)?;
    let started = begin(Command::new(program).args(rest), variables);
    match started {
        // A script without `#!` is run by the shell, as `env` and `flock` do it.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOEXEC) => {
            let script = found(program).ok_or(error)?;
            begin(Command::new("/bin/sh").arg("--").arg(script).args(rest), variables)
        }
        started => started,
    }
}

fn begin(command: &mut Command, variables: &[(String, String)]) -> io::Result<Child> {
    let variables = variables.iter().map(|(name, value)| (name, value));
    command.envs(variables).process_group(0).spawn()
}

/// The file of a program: the first executable one in the folders of PATH.
fn found(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = env::var_os("PATH").unwrap_or("/bin:/usr/bin".into());
    // An empty folder is the current one; `./` keeps the name from being searched for again.
    let folders = env::split_paths(&path).map(|folder| Path::new(".").join(folder));
    let files = folders.map(|folder| folder.join(program));
    files.into_iter().find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok())
}
