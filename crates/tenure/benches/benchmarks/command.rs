//! The command: its cost in a shell.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::memory::now;
use super::redis::{median, verbose};

const RUNS: usize = 60;

/// The release build of the command; `cargo xtask bench` builds it, and sets its path.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("TENURE_BENCH_COMMAND")
        .expect("TENURE_BENCH_COMMAND names the command: `cargo xtask bench` sets it")
        .into()
}

/// `tenure run x -- true` over `flock FILE true`, in turns.
pub(crate) fn run_overhead() -> Vec<f64> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("flock");
    (0..7)
        .map(|_| {
            let (mut ours, mut plain) = (Vec::new(), Vec::new());
            for _ in 0..RUNS {
                ours.push(millis(tenure(folder.path()).args(["run", "x", "--", "true"])));
                plain.push(millis(Command::new("flock").arg(&file).arg("true")));
            }
            let (ours, plain) = (median(ours), median(plain));
            verbose(&format!("tenure {ours:.2} ms, flock {plain:.2} ms"));
            ours / plain
        })
        .collect()
}

/// Milliseconds until it has printed its version.
pub(crate) fn start() -> Vec<f64> {
    let folder = tempfile::tempdir().expect("a folder");
    let once = |_| millis(tenure(folder.path()).arg("--version"));
    (0..7).map(|_| median((0..RUNS).map(once))).collect()
}

/// Megabytes of the program.
pub(crate) fn size() -> Vec<f64> {
    let bytes = std::fs::metadata(program()).expect("the command").len();
    vec![bytes as f64 / 1e6]
}

/// The command with a local store of its own.
fn tenure(folder: &Path) -> Command {
    let mut command = Command::new(program());
    command.env_remove("TENURE_URL").env_remove("REDIS_URL").env("XDG_STATE_HOME", folder);
    command
}

fn millis(command: &mut Command) -> f64 {
    let started = now();
    let status = command.stdout(Stdio::null()).status().expect("it runs");
    assert!(status.success(), "{command:?}: {status}");
    started.elapsed().as_secs_f64() * 1e3
}
