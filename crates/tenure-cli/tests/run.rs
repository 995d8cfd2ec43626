//! `tenure run`, as a user types it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use assert_cmd::Command;
use assert_cmd::assert::Assert;

fn tenure(arguments: &[&str]) -> Assert {
    let folder = tempfile::tempdir().unwrap();
    command(folder.path()).args(arguments).assert()
}

/// The command with a local store of its own.
fn command(folder: &std::path::Path) -> Command {
    let mut command = Command::cargo_bin("tenure").unwrap();
    command.env_remove("TENURE_URL").env_remove("REDIS_URL").env("XDG_RUNTIME_DIR", folder);
    command
}

fn stderr(assert: &Assert) -> String {
    String::from_utf8_lossy(&assert.get_output().stderr).into_owned()
}

#[test]
fn the_command_runs_and_says_nothing_of_its_own() {
    tenure(&["run", "hello", "--", "echo", "one at a time"])
        .success()
        .stdout("one at a time\n")
        .stderr("");
}

#[test]
fn the_exit_status_is_the_commands_own() {
    tenure(&["run", "x", "--", "sh", "-c", "exit 7"]).code(7);
    tenure(&["run", "x", "--", "sh", "-c", "kill -TERM $$"]).code(128 + 15);
}

#[test]
fn a_command_that_cannot_be_run_is_told_as_a_shell_does() {
    let missing = tenure(&["run", "x", "--", "/no/such/program"]).code(127);
    assert!(stderr(&missing).contains("could not run `/no/such/program`"));
    tenure(&["run", "x", "--", "/"]).code(126);
}

#[test]
fn the_child_knows_its_lock() {
    let script = r#"test "$TENURE_NAME" = x && test ${#TENURE_OWNER} = 32 && test "$TENURE_FENCE" -gt 1000000000000000"#;
    tenure(&["run", "x", "--", "sh", "-c", script]).success();
}

#[test]
fn standard_input_passes_through() {
    let folder = tempfile::tempdir().unwrap();
    command(folder.path())
        .args(["run", "x", "--", "cat"])
        .write_stdin("in and out")
        .assert()
        .success()
        .stdout("in and out");
}

#[test]
fn bad_input_is_64_and_says_what_is_allowed() {
    for (arguments, sentence) in [
        (&["run", "", "--", "true"][..], "must not be empty"),
        (&["run", "--lease", "0s", "x", "--", "true"], "10 ms to 24 h"),
        (&["run", "--wait", "soon", "x", "--", "true"], "500ms, 10s, 2m or 1h"),
        (&["run", "--url", "nowhere://user:secret@host", "x", "--", "true"], "cannot be used"),
        (&["run", "x"], "required"),
        (&["frobnicate"], "frobnicate"),
    ] {
        let assert = tenure(arguments).code(64);
        let said = stderr(&assert);
        assert!(said.contains(sentence), "{arguments:?}: {said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

#[test]
fn help_is_no_misuse() {
    let help = tenure(&["run", "--help"]).success();
    let said = String::from_utf8_lossy(&help.get_output().stdout).into_owned();
    assert!(said.contains("75 if the lock") && said.contains("--wait <TIME>"), "{said}");
    tenure(&["--version"]).success();
}

/// R32: with nothing installed, two commands on one machine keep each other out. One that is
/// killed leaves its lock to the command it ran, and with that one it is free at once.
#[test]
fn commands_of_one_machine_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let code = |arguments: &[&str]| {
        let output = command(folder.path()).args(arguments).output().unwrap();
        output.status.code().unwrap()
    };
    let mut holder = std::process::Command::new(env!("CARGO_BIN_EXE_tenure"));
    holder.env_remove("TENURE_URL").env_remove("REDIS_URL").env("XDG_RUNTIME_DIR", folder.path());
    holder.args(["run", "--lease", "1h", "x", "--", "sh", "-c", "echo $$; exec sleep 60"]);
    let mut holder = holder.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut child = String::new();
    let output = holder.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut child).unwrap();
    assert_eq!(code(&["run", "-n", "x", "--", "true"]), 75);
    assert_eq!(code(&["run", "-n", "y", "--", "true"]), 0);
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(code(&["run", "-n", "x", "--", "true"]), 75, "what it ran lives on");
    let child = child.trim().parse().ok().and_then(rustix::process::Pid::from_raw).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    assert_eq!(code(&["run", "-w", "10s", "x", "--", "true"]), 0, "the kernel tells");
}
