//! Runs other programs, and reports how they ended.
//!
//! Every failure becomes one sentence, so every chore is a sequence of `?`. No program gets our standard
//! input: a question that cannot be answered must fail, not hang.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Why a chore failed: a sentence with the cause and the remedy.
#[derive(Debug)]
pub(crate) struct Failure(String);

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The folder of the workspace, known since this program was built there.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The folder that Cargo builds in, which it resolves from the workspace's folder.
pub(crate) fn target_folder() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// The `cargo` that started us, to be run in the workspace's folder.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(root());
    command
}

pub(crate) fn rustup(arguments: &[&str]) -> Command {
    let mut rustup = Command::new("rustup");
    rustup.args(arguments);
    rustup
}

/// The output of rustup; empty where rustup is not installed.
pub(crate) fn rustup_output(arguments: &[&str]) -> Outcome<String> {
    if succeeds(rustup(&["--version"])) { output(rustup(arguments)) } else { Ok(String::new()) }
}

/// Runs the command to its end, its output going where ours goes.
pub(crate) fn run(mut command: Command) -> Outcome {
    let status = command.stdin(Stdio::null()).status();
    check(&command, status)
}

/// Runs the command to its end, and calls `on_line` with each line of its standard output, which goes where
/// ours goes.
pub(crate) fn run_with_lines(mut command: Command, mut on_line: impl FnMut(&str)) -> Outcome {
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let status = started.and_then(|mut child| {
        let lines = child.stdout.take().map(|printed| BufReader::new(printed).split(b'\n'));
        for line in lines.into_iter().flatten() {
            let line = String::from_utf8_lossy(&line?).into_owned();
            println!("{line}");
            on_line(&line);
        }
        child.wait()
    });
    check(&command, status)
}

/// Runs the command with its output on our standard error, where ours is reserved for the result.
pub(crate) fn run_aside(mut command: Command) -> Outcome {
    let status = command.stdin(Stdio::null()).stdout(std::io::stderr()).status();
    check(&command, status)
}

/// Runs the command and returns its standard output.
pub(crate) fn output(mut command: Command) -> Outcome<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let (status, printed) = match output {
        Ok(output) => (Ok(output.status), output.stdout),
        Err(error) => (Err(error), Vec::new()),
    };
    check(&command, status)?;
    Ok(String::from_utf8_lossy(&printed).into_owned())
}

/// Whether the command exists and succeeds, quietly.
pub(crate) fn succeeds(mut command: Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// One line of progress on standard error.
pub(crate) fn say(line: impl fmt::Display) {
    eprintln!("xtask: {line}");
}

/// Runs one step under its heading, and prints how long it took.
pub(crate) fn step(heading: &str, work: impl FnOnce() -> Outcome) -> Outcome {
    eprintln!("\n── {heading}");
    let began = now();
    let outcome = work();
    let verdict = if outcome.is_ok() { "passed" } else { "FAILED" };
    eprintln!("── {heading}: {verdict} in {}", seconds(now() - began));
    outcome
}

fn check(command: &Command, status: std::io::Result<ExitStatus>) -> Outcome {
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::new(format!("`{}` failed ({status}).", line(command)))),
        Err(error) => Err(Failure::new(format!("could not run `{}`: {error}.", line(command)))),
    }
}

/// The command as typed in a shell.
fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a chore's duration is for reading, no lease depends on it"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_is_named_in_the_sentence() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exit 3"]);
        let failure = run(command).unwrap_err().to_string();
        assert_eq!(failure, "`sh -c exit 3` failed (exit status: 3).");
    }

    #[test]
    fn output_is_passed_on_line_by_line() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo one; echo two; exit 3"]);
        let mut lines = Vec::new();
        run_with_lines(command, |line| lines.push(line.to_owned())).unwrap_err();
        assert_eq!(lines, ["one", "two"]);
    }

    #[test]
    fn a_missing_program_is_named_in_the_sentence() {
        let failure = output(Command::new("no-such-program")).unwrap_err().to_string();
        assert!(failure.starts_with("could not run `no-such-program`: "), "{failure}");
    }
}
