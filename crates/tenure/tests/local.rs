//! The local engine with real processes and real disks, and their failures.

#![cfg(feature = "local")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/process.rs"]
mod process;
mod local {
    mod access;
    mod crowd;
    mod disk;
    mod doctor;
    mod folder;
    mod kills;
    mod namespace;
    mod opening;
    mod other;
    mod readers;
    mod removal;
    mod stops;
}

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tenure::Tenure;
use tenure::blocking::block_on;

const LONG: Duration = Duration::from_secs(20);

fn store() -> (TempDir, PathBuf) {
    let around = tempfile::tempdir().unwrap();
    let folder = around.path().join("locks");
    (around, folder)
}

fn connect(folder: &Path) -> Tenure {
    block_on(Tenure::connect(&format!("local://{}", folder.display()))).unwrap()
}

/// A client that does not retry.
fn connect_once(folder: &Path) -> Result<Tenure, tenure::Error> {
    let builder = Tenure::builder().patience(Duration::ZERO);
    block_on(builder.connect(&format!("local://{}", folder.display())))
}

#[expect(clippy::disallowed_methods, reason = "a test measures time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "only time is to pass")]
fn pass(time: Duration) {
    std::thread::sleep(time);
}

fn until_waiting(tenure: &Tenure, count: usize) {
    let begun = now();
    while block_on(tenure.lock("x").inspect()).unwrap().waiting != count {
        assert!(begun.elapsed() < LONG, "the number of waiters never was {count}");
        std::thread::yield_now();
    }
}
