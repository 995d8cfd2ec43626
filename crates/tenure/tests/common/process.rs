//! Another process: the same test program, started again for one ignored test, which prints its progress.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

pub(crate) struct Process {
    pub(crate) child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a command that ends in [`part`].
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Reads until the process has printed this word, and returns the line.
    pub(crate) fn expect(&mut self, word: &str) -> String {
        let mut lines = (&mut self.output).lines().map_while(Result::ok);
        let found = lines.find(|line| line.contains(word));
        found.unwrap_or_else(|| panic!("it ended without printing {word}"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills it, and returns when it has ended.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Adds the arguments that run one ignored test of this program, and nothing else.
pub(crate) fn part<'a>(command: &'a mut Command, test: &str) -> &'a mut Command {
    command.args([test, "--exact", "--ignored", "--nocapture"])
}

pub(crate) fn this_program() -> Command {
    Command::new(std::env::current_exe().unwrap())
}
