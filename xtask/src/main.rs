//! The project's own chores, run as `cargo xtask <chore>`. This file is the map: one subcommand, one file.
//!
//! They are plain Rust, so that a fresh clone needs nothing but a toolchain, and a laptop and the
//! continuous integration run the very same steps.

mod bench;
mod busy;
mod msrv;
mod promises;
mod requirements;
mod server;
mod sh;
mod sources;
mod stall;
mod test;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of the Tenure project. Start with `cargo xtask test`.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Run every test, against a real Redis, a real Redis 6.2 and a real Valkey.
    ///
    /// They are taken from TENURE_TEST_REDIS, TENURE_TEST_REDIS_6 and TENURE_TEST_VALKEY, or from the
    /// PATH. A missing Redis is installed by the package manager (as root, by Homebrew, or with
    /// TENURE_INSTALL=yes by sudo; TENURE_INSTALL=no forbids it), a missing Redis 6.2 or Valkey is
    /// unpacked into target/tenure-servers. One that cannot be had is a failure, never a skipped test;
    /// TENURE_TEST_ONLY=redis, or =redis,valkey, runs the tests with these alone.
    Test(test::Options),
    /// Check all that a change must pass: formatting, lints, docs, promises, oldest Rust, then every test.
    ///
    /// Stops at the first failure. This is what the continuous integration runs.
    Verify(verify::Options),
    /// Measure: print the figures of the library's benchmark.
    Bench(bench::Options),
    /// Print the variables that name the servers to the tests.
    #[command(hide = true)]
    Server(server::Options),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().chore {
        Chore::Test(options) => test::run(&options),
        Chore::Verify(options) => verify::run(&options),
        Chore::Bench(options) => bench::run(&options),
        Chore::Server(options) => server::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\nxtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
