//! The fuzz targets in `fuzz/`: a workspace of its own, because cargo-fuzz builds it with its own flags.
//!
//! Where a nightly toolchain and cargo-fuzz are installed, a short run is guided by coverage. Everywhere the
//! same entry points get random and mutated inputs from `fuzz/src/main.rs`, which needs stable Rust only.

use std::path::PathBuf;
use std::process::Command;

use crate::sh::{self, Outcome};

const MANIFEST: &str = "fuzz/Cargo.toml";

/// One file in `fuzz/targets/` each.
const TARGETS: [&str; 5] = ["handle", "name", "record", "resp", "url"];

/// How long each target runs: enough to leave the seeds behind, short against a long test run.
const SECONDS: u32 = 20;

/// Type-checks the targets, so that a change of the library cannot break them unnoticed.
pub(crate) fn check() -> Outcome {
    let mut check = cargo(&["check", "--bins"]);
    // A check links nothing, so libFuzzer need not be compiled.
    check.env("CUSTOM_LIBFUZZER_PATH", "/dev/null");
    sh::run(check)
}

/// Runs every target for a short time.
pub(crate) fn run() -> Outcome {
    let mut random = cargo(&["run", "--release", "--bin", "random", "--no-default-features"]);
    random.arg("--").arg(SECONDS.to_string());
    sh::run(random)?;
    if !sh::succeeds(nightly(&["fuzz", "--version"])) {
        sh::say(
            "fuzz targets NOT run with coverage: install a nightly toolchain \
             (`rustup toolchain install nightly`) and `cargo install cargo-fuzz --locked`",
        );
        return Ok(());
    }
    TARGETS.iter().try_for_each(|target| sh::run(guided(target)))
}

/// A run of one target by cargo-fuzz, which starts from its own corpus and from our seeds.
fn guided(target: &str) -> Command {
    let mut fuzz = nightly(&["fuzz", "run", target]);
    let corpus = target_folder().join("corpus").join(target);
    // libFuzzer writes new inputs to the first folder, which must exist.
    let _ = std::fs::create_dir_all(&corpus);
    fuzz.arg(corpus).arg(format!("fuzz/seeds/{target}"));
    fuzz.args([
        "--",
        &format!("-max_total_time={SECONDS}"),
        "-max_len=4096",
        "-print_final_stats=1",
    ]);
    fuzz
}

/// Cargo on the fuzz workspace, with the library's entry points for fuzzing compiled in.
fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = sh::cargo(arguments);
    cargo.args(["--locked", "--manifest-path", MANIFEST, "--target-dir"]).arg(target_folder());
    cargo.env("RUSTFLAGS", "--cfg fuzzing");
    cargo
}

fn nightly(arguments: &[&str]) -> Command {
    let mut rustup = Command::new("rustup");
    rustup.args(["run", "nightly", "cargo"]).args(arguments).current_dir(sh::root());
    // The cargo that runs us names its own toolchain there.
    rustup.env_remove("CARGO").env_remove("RUSTC").env("CARGO_TARGET_DIR", target_folder());
    rustup
}

fn target_folder() -> PathBuf {
    sh::target_folder().join("fuzz")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_known_and_has_seeds() {
        let folder = sh::root().join("fuzz/targets");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let mut names: Vec<_> =
            files.map(|file| file.file_stem().unwrap().to_string_lossy().into_owned()).collect();
        names.sort();
        assert_eq!(names, TARGETS);
        for target in TARGETS {
            let seeds = sh::root().join("fuzz/seeds").join(target);
            assert!(std::fs::read_dir(seeds).unwrap().next().is_some(), "{target}");
        }
    }
}
