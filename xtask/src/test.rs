//! `cargo xtask test`: every test, on real servers.
//!
//! The one definition of how the tests are run; `cargo xtask verify` uses it too, so the two cannot differ.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::busy::Busy;
use crate::fuzz;
use crate::server::Servers;
use crate::sh;
use crate::stall::{self, Stalls};

/// The variable by which test programs know how many tests run at a time.
const THREADS: &str = "RUST_TEST_THREADS";

/// No test takes longer than this.
const LONGEST_TEST: Duration = Duration::from_secs(90);

/// How often tests are run that fail because the machine was paused, or its clock set.
const ATTEMPTS: usize = 4;

/// How many tests of a program run at a time for each core: most of them wait, for leases and timeouts.
const TESTS_PER_CORE: usize = 3;

/// How often a long run tries each property: enough for a bug that needs a rare interleaving.
const LONG_CASES: &str = "100000";

/// Tests to which busy loops make no difference, by parts of their names: of pure functions, which get the time as an argument,
/// and of simulations, which have their own. They would take minutes.
const TIMELESS: [&str; 4] =
    ["core::", "simulation::", "do_what_the_table_does", "does_what_the_table_does"];

/// Tests that run on another kind of server as well. What depends on the load is the client, which is the same.
const OTHER_SERVERS: [&str; 4] = ["redis_6::", "redisson_6::", "valkey::", "valkey_cluster::"];

#[derive(Args)]
pub(crate) struct Options {
    /// Try every property 100,000 times, run the long tests and a short run of the fuzz targets too,
    /// and build with optimisations (takes many minutes).
    #[arg(long)]
    pub(crate) long: bool,
    /// Run the tests beside busy loops, one for each core.
    #[arg(long)]
    pub(crate) busy: bool,
    /// Install a missing system package without asking.
    #[arg(long)]
    pub(crate) yes: bool,
}

pub(crate) fn run(options: &Options) -> sh::Outcome {
    let servers = Servers::find(options.yes)?;
    // No --all-targets: it would run the benchmarks as tests, and leave out the documentation's examples.
    // Compiled first: the busy loops must not slow the compiler.
    let mut compile = cargo_test(options, &servers);
    compile.arg("--no-run");
    sh::run(compile)?;
    let busy = options.busy.then(Busy::start);
    run_all(options, &servers)?;
    drop(busy);
    // Once is enough: parsing does not depend on the load.
    if options.long && !options.busy {
        fuzz::run()?;
    }
    // Logged before, but by now a few thousand lines above.
    servers.warn_if_one_is_missing();
    Ok(())
}

/// Runs every test, and repeats those that failed right after the whole machine was paused or its clock set, which proves
/// nothing either way. Any other failure counts.
fn run_all(options: &Options, servers: &Servers) -> sh::Outcome {
    let stalls = Stalls::watch();
    let mut names = Vec::new();
    for _ in 0..ATTEMPTS {
        let failed = run_some(options, servers, &names)?;
        if failed.is_empty() {
            return Ok(());
        }
        let (paused, failed): (Vec<_>, Vec<_>) =
            failed.into_iter().partition(|test| stalls.was_one_within(LONGEST_TEST, test.at));
        if !failed.is_empty() {
            let names: Vec<_> = failed.into_iter().map(|test| test.name).collect();
            return Err(sh::Failure::new(format!("these tests failed: {}.", names.join(", "))));
        }
        names = paused.into_iter().map(|test| test.name).collect();
        sh::say(format!(
            "run again, because this machine was paused, or its clock set: {}",
            names.join(", ")
        ));
    }
    Err(sh::Failure::new("this machine is paused too often to test anything; use another one."))
}

/// A test that has failed.
struct Failed {
    name: String,
    at: Instant,
}

/// Runs these tests, or all if none is named; returns those that failed.
fn run_some(options: &Options, servers: &Servers, names: &[String]) -> sh::Outcome<Vec<Failed>> {
    let mut cargo = cargo_test(options, servers);
    cargo.arg("--no-fail-fast").arg("--");
    if !names.is_empty() {
        cargo.arg("--exact").args(names);
    }
    if options.busy {
        let left_out = TIMELESS.iter().chain(&OTHER_SERVERS);
        cargo.args(left_out.flat_map(|name| ["--skip", name]));
    }
    let mut report = Report::default();
    match sh::run_with_lines(cargo, |line| report.line(line, stall::now())) {
        // No test ran, or one ended the program, or some of the output was not recognised.
        Err(failure) if !report.is_complete() => Err(failure),
        _ => Ok(report.failed),
    }
}

/// The results in the output of the tests.
#[derive(Default)]
struct Report {
    failed: Vec<Failed>,
    /// How many have failed, by the programs' own count.
    failures: usize,
    began: usize,
    ended: usize,
}

impl Report {
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

    /// Whether each program ran to its end, and each failure has a name.
    fn is_complete(&self) -> bool {
        !self.failed.is_empty() && self.began == self.ended && self.failed.len() == self.failures
    }
}

fn cargo_test(options: &Options, servers: &Servers) -> Command {
    // A feature that is off leaves its tests out.
    let mut cargo = sh::cargo(&["test", "--workspace", "--all-features", "--locked"]);
    servers.pass_to(&mut cargo);
    if std::env::var_os(THREADS).is_none() {
        let cores = thread::available_parallelism().map_or(2, usize::from);
        cargo.env(THREADS, (cores * TESTS_PER_CORE).to_string());
    }
    if options.busy {
        // Without the documentation's examples, which are too short to depend on the load.
        cargo.args(["--lib", "--bins", "--tests", "--examples"]);
    }
    if options.long {
        cargo.arg("--release").env("PROPTEST_CASES", LONG_CASES).env("TENURE_LONG", "1");
    }
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(lines: &[&str]) -> Report {
        let mut report = Report::default();
        lines.iter().for_each(|line| report.line(line, stall::now()));
        report
    }

    #[test]
    fn failures_are_known_by_name_or_not_at_all() {
        let result = "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured";
        let whole = report(&["running 2 tests", "test a ... ok", "test b::c ... FAILED", result]);
        assert!(whole.is_complete());
        assert_eq!(whole.failed[0].name, "b::c");
        assert!(!report(&["running 2 tests", "test b::c ... printedFAILED", result]).is_complete());
        assert!(
            !report(&["running 2 tests", "test b::c ... FAILED"]).is_complete(),
            "it was killed"
        );
        assert!(!report(&["running 2 tests", "test result: ok. 2 passed; 0 failed"]).is_complete());
    }
}
