//! Ends a server and removes its folder when the test process ends, even if SIGKILL killed it.
//!
//! A small shell process reads from a pipe which server to watch. The kernel closes the pipe when the
//! test process ends for any reason; the shell then kills the server and removes the folder.
//!
//! Why not the parent-death signal (`prctl`, or `setpriv --pdeathsig`)? It fires when the *thread* that
//! started the child ends, so a server shared between tests would die with the first of them. It exists
//! on Linux only, needs a program that may be missing, and leaves the folder behind.

use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Each line names the process to watch; an empty line, none. Signals meant for the whole group (an
/// interrupt from the terminal) must not end the guardian before its work is done.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
server=
while read -r line; do server=$line; done
[ -z "$server" ] || kill -s "$2" "$server"
rm -rf "$1"
"#;

/// The guardian of one server.
#[derive(Debug)]
pub(crate) struct Guardian {
    shell: Child,
    pipe: Option<ChildStdin>,
}

impl Guardian {
    /// Starts watching over the folder.
    pub(crate) fn of(folder: &Path) -> Self {
        Self::sending("KILL", folder)
    }

    /// The same, for a server that is to be ended by this signal.
    pub(crate) fn sending(signal: &str, folder: &Path) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "guardian"]).arg(folder).arg(signal);
        // Outliving us, it must not hold open what others read to its end.
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut shell = shell.spawn().expect("every Unix has a shell called `sh`");
        let pipe = shell.stdin.take();
        Self { shell, pipe }
    }

    /// Sets the process id of the server.
    pub(crate) fn watch(&mut self, pid: u32) {
        self.send(&format!("{pid}\n"));
    }

    /// Stops watching, because the test itself ended the server. Must be called before the server is waited
    /// for: until then no other process can get its id, so the guardian never kills an unrelated process.
    pub(crate) fn forget(&mut self) {
        self.send("\n");
    }

    /// A guardian that was killed is no reason to fail the test, and no reason to panic in a drop.
    fn send(&mut self, line: &str) {
        if let Some(pipe) = &mut self.pipe {
            let _ = pipe.write_all(line.as_bytes());
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let _ = self.shell.wait();
    }
}
