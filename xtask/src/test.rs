//! `cargo xtask test`: every test, on real servers.
//!
//! The one place that says how the tests are run; `cargo xtask verify` comes here too, so that the two
//! can never differ.

use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;

use crate::busy::Busy;
use crate::server::Servers;
use crate::sh;
use crate::stall::{self, Stalls};

/// No test takes longer than this.
const LONGEST_TEST: Duration = Duration::from_secs(90);

/// How often tests are run that fail because the machine stood still.
const ATTEMPTS: usize = 4;

/// How often a long run tries each property: enough for a bug that needs a rare order of events.
const LONG_CASES: &str = "100000";

#[derive(Args)]
pub(crate) struct Options {
    /// Try every property 100,000 times, run the long tests too, and build with
    /// optimisations (takes many minutes).
    #[arg(long)]
    pub(crate) long: bool,
    /// Run the tests beside busy loops, one for each core.
    #[arg(long)]
    pub(crate) busy: bool,
}

pub(crate) fn run(options: &Options) -> sh::Outcome {
    let servers = Servers::find()?;
    // No --all-targets: it would run the benchmarks as tests, and leave out the documentation's examples.
    // Compiled first: the compiler is not what busy loops are to disturb.
    let mut compile = cargo_test(options, &servers);
    compile.arg("--no-run");
    sh::run(compile)?;
    let busy = options.busy.then(Busy::start);
    run_all(options, &servers)?;
    drop(busy);
    // Said before, but by now a few thousand lines above.
    servers.say_if_one_is_missing();
    Ok(())
}

/// Runs every test; again those that failed while the machine itself stood still, which proves nothing
/// either way. What fails otherwise has failed.
fn run_all(options: &Options, servers: &Servers) -> sh::Outcome {
    let stalls = Stalls::watch();
    let mut names = Vec::new();
    for _ in 0..ATTEMPTS {
        let failed = run_some(cargo_test(options, servers), &names)?;
        if failed.is_empty() {
            return Ok(());
        }
        let (excused, guilty): (Vec<_>, Vec<_>) =
            failed.into_iter().partition(|test| stalls.was_one_within(LONGEST_TEST, test.at));
        if !guilty.is_empty() {
            let guilty: Vec<_> = guilty.into_iter().map(|test| test.name).collect();
            return Err(sh::Failure::new(format!("These tests failed: {}.", guilty.join(", "))));
        }
        names = excused.into_iter().map(|test| test.name).collect();
        sh::say(format!("run again, because this machine stood still: {}", names.join(", ")));
    }
    Err(sh::Failure::new("This machine stands still too often to test anything."))
}

/// A test that has failed.
struct Failed {
    name: String,
    at: Instant,
}

/// Runs these tests, or all if none is named; those that failed.
fn run_some(mut cargo: Command, names: &[String]) -> sh::Outcome<Vec<Failed>> {
    cargo.arg("--no-fail-fast");
    if !names.is_empty() {
        cargo.args(["--", "--exact"]).args(names);
    }
    let mut heard = Heard::default();
    match sh::run_listening(cargo, |line| heard.line(line, stall::now())) {
        // It did not even come to the tests, or was ended by one, or not all of it was understood.
        Err(failure) if !heard.is_whole() => Err(failure),
        _ => Ok(heard.failed),
    }
}

/// What tests have printed.
#[derive(Default)]
struct Heard {
    failed: Vec<Failed>,
    /// How many have failed, by the programs' own count.
    failures: usize,
    began: usize,
    ended: usize,
}

impl Heard {
    fn line(&mut self, line: &str, at: Instant) {
        let name = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED"));
        self.failed.extend(name.map(|name| Failed { name: name.to_owned(), at }));
        self.began += usize::from(line.starts_with("running ") && line.contains(" test"));
        if let Some(result) = line.strip_prefix("test result: ") {
            self.ended += 1;
            let failures = result.split("; ").find_map(|part| part.strip_suffix(" failed"));
            self.failures += failures.and_then(|count| count.parse().ok()).unwrap_or(0);
        }
    }

    /// Whether each program has come to its end, and each failure has a name.
    fn is_whole(&self) -> bool {
        !self.failed.is_empty() && self.began == self.ended && self.failed.len() == self.failures
    }
}

fn cargo_test(options: &Options, servers: &Servers) -> Command {
    let mut cargo = sh::cargo(&["test", "--workspace", "--locked"]);
    servers.tell(&mut cargo);
    if options.long {
        cargo.arg("--release").env("PROPTEST_CASES", LONG_CASES).env("TENURE_LONG", "1");
    }
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(lines: &[&str]) -> Heard {
        let mut heard = Heard::default();
        lines.iter().for_each(|line| heard.line(line, stall::now()));
        heard
    }

    #[test]
    fn failures_are_known_by_name_or_not_at_all() {
        let result = "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured";
        let whole = heard(&["running 2 tests", "test a ... ok", "test b::c ... FAILED", result]);
        assert!(whole.is_whole());
        assert_eq!(whole.failed[0].name, "b::c");
        assert!(!heard(&["running 2 tests", "test b::c ... printedFAILED", result]).is_whole());
        assert!(!heard(&["running 2 tests", "test b::c ... FAILED"]).is_whole(), "it was killed");
        assert!(!heard(&["running 2 tests", "test result: ok. 2 passed; 0 failed"]).is_whole());
    }
}
