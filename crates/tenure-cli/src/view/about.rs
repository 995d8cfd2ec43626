//! How a lock's holder is described to users: a program that they know, and a pid only if that process lives for as
//! long as the lock is held.

use std::ffi::OsString;
use std::path::Path;

use rustix::process::getppid;
use tenure::About;

use crate::exec::processes::Process;

/// The length limit of a program's name.
const LONGEST: usize = 64;

/// A command that runs under a lock, with the pid of `tenure`, which lives for as long as the lock is held, and
/// forwards signals to the command.
pub(crate) fn of_command(command: &[OsString]) -> About {
    let mut about = About::this_process();
    let program = command.first().map(Path::new).and_then(Path::file_name);
    if let Some(program) = program {
        about.program = program.to_string_lossy().chars().take(LONGEST).collect::<String>().into();
    }
    about
}

/// A shell for which a background process holds a lock. The shell's pid is shown: it lives for as long as the lock
/// is held, and a signal that ends it releases the lock.
pub(crate) fn of_shell(shell: &Process) -> About {
    let mut about = About::this_process();
    about.program = shell.program.chars().take(LONGEST).collect::<String>().into();
    about.pid = u32::try_from(shell.pid.as_raw_nonzero().get()).unwrap_or_default();
    about
}

/// The caller of a subcommand that ends at once: its program and user. No pid, because its process may end before
/// the lock does.
pub(crate) fn of_caller() -> About {
    let mut about = About::this_process();
    let caller = getppid().map(|pid| format!("/proc/{}/comm", pid.as_raw_nonzero()));
    let caller = caller.and_then(|path| std::fs::read_to_string(path).ok());
    let caller = caller.as_deref().map(str::trim_end).filter(|name| !name.is_empty());
    let caller = caller.unwrap_or(&about.program);
    let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    let caller = match user.filter(|user| !user.is_empty()) {
        Some(user) => format!("{caller} of {user}"),
        None => caller.to_owned(),
    };
    about.program = caller.chars().take(LONGEST).collect::<String>().into();
    about.pid = 0;
    about
}

/// The server of `tenure serve`, for locks that it holds itself, and for those of clients without a process that is known here.
pub(crate) fn of_server() -> About {
    let mut about = About::this_process();
    about.program = "tenure serve".into();
    about
}
