//! A process of a program: it gets ready, is started, and reports.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Duration;

use super::report::Report;

/// How long a program may be silent after it should have answered: machines pause, and a JVM starts slowly beside seven others.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running process, which ends when this is dropped.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
}

impl Process {
    pub(crate) fn spawn(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("it does not start: {error}"))?;
        let (sender, lines) = mpsc::channel();
        let output = child.stdout.take().map(BufReader::new);
        std::thread::spawn(move || {
            for line in output.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let errors = child.stderr.take().map(|mut errors| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                let _ = errors.read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
        });
        Ok(Self { child, lines, errors })
    }

    /// Waits until it is connected and warm.
    pub(crate) fn wait(&mut self, within: f64) -> Result<(), String> {
        match self.line(within)?.as_str() {
            "ready" => Ok(()),
            other => Err(format!("it printed `{other}` instead of `ready`")),
        }
    }

    /// Lets it begin.
    pub(crate) fn start(&mut self) -> Result<(), String> {
        let input = self.child.stdin.as_mut().ok_or("it has no input")?;
        let written = input.write_all(b"go\n").and_then(|()| input.flush());
        written.map_err(|error| format!("it cannot be started: {error}"))
    }

    pub(crate) fn report(&mut self, within: f64) -> Result<Report, String> {
        let line = self.line(within)?;
        Report::parse(&line).ok_or_else(|| {
            let begin: String = line.chars().take(100).collect();
            format!("it printed `{begin}` instead of a report")
        })
    }

    fn line(&mut self, within: f64) -> Result<String, String> {
        let within = Duration::from_secs_f64(within) + PATIENCE;
        match self.lines.recv_timeout(within) {
            Ok(line) => Ok(line),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                Err(format!("it was silent for {} s", within.as_secs()))
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(self.why_it_ended()),
        }
    }

    fn why_it_ended(&mut self) -> String {
        let status = self.child.wait().map_or_else(|error| error.to_string(), |it| it.to_string());
        let errors = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        let last: Vec<_> = errors.lines().filter(|line| !line.trim().is_empty()).take(3).collect();
        format!("it ended early ({status}): {}", last.join(" / "))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Most have ended by themselves.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", script]);
        Process::spawn(shell).unwrap()
    }

    #[test]
    fn a_process_is_ready_starts_and_reports() {
        let line = r#"{"version":"1","sections":0,"seconds":1,"every":1,"times":[]}"#;
        let mut process = shell(&format!("echo ready; read go; echo '{line}'"));
        process.wait(1.0).unwrap();
        process.start().unwrap();
        assert_eq!(process.report(1.0).unwrap().version, "1");
    }

    #[test]
    fn a_process_that_fails_says_why() {
        let mut process = shell("echo 'no server' >&2; exit 3");
        let why = process.wait(1.0).unwrap_err();
        assert_eq!(why, "it ended early (exit status: 3): no server");
    }
}
