//! `cargo xtask test`: every test, on real servers.
//!
//! The one place that says how the tests are run; `cargo xtask verify` comes here too, so that the two
//! can never differ.

use std::process::Command;

use clap::Args;

use crate::busy::Busy;
use crate::server::Servers;
use crate::sh;

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
    sh::run(cargo_test(options, &servers))?;
    drop(busy);
    // Said before, but by now a few thousand lines above.
    servers.say_if_one_is_missing();
    Ok(())
}

fn cargo_test(options: &Options, servers: &Servers) -> Command {
    let mut cargo = sh::cargo(&["test", "--workspace", "--locked"]);
    servers.tell(&mut cargo);
    if options.long {
        cargo.arg("--release").env("PROPTEST_CASES", LONG_CASES).env("TENURE_LONG", "1");
    }
    cargo
}
