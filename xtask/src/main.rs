//! The project's own chores, run as `cargo xtask <chore>`. This file is the map: one subcommand, one file.
//!
//! They are plain Rust, so that a fresh clone needs only a toolchain, and a laptop and the continuous
//! integration run the same steps.

mod bench;
mod book;
mod busy;
mod deny;
mod documents;
mod fuzz;
mod msrv;
mod mutants;
mod peers;
mod portability;
mod promises;
mod requirements;
mod server;
mod sh;
mod sources;
mod stall;
mod test;
mod torture;
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
    /// Run every test, against a real Redis, a real Redis 6.2, a real Valkey, a real PostgreSQL and a real Prometheus.
    ///
    /// The servers are taken from TENURE_TEST_REDIS, TENURE_TEST_REDIS_6 and TENURE_TEST_VALKEY (programs),
    /// TENURE_TEST_POSTGRES and TENURE_TEST_PROMETHEUS (folders of programs), or from the PATH. A missing Redis
    /// or PostgreSQL is installed by the package manager (as root, by Homebrew or by sudo); at a terminal the
    /// command asks before, unless --yes or TENURE_INSTALL=yes agrees, and TENURE_INSTALL=no forbids it. A
    /// missing Redis 6.2, Valkey or Prometheus is unpacked into target/tenure-servers.
    /// A server that cannot be provided is a failure, never a skipped test; TENURE_TEST_ONLY=redis, or
    /// =redis,valkey, runs the tests with these Redis servers alone.
    Test(test::Options),
    /// Check everything that a change must pass: formatting, lints, docs, documents, promises, oldest Rust, fuzz targets,
    /// dependencies, then every test.
    ///
    /// Stops at the first failure. This is what the continuous integration runs.
    Verify(verify::Options),
    /// Run the library's benchmarks and print the results.
    Bench(bench::Options),
    /// Measure Tenure beside other lock libraries: the same work, the same server, the same minute.
    ///
    /// The programs in bench/peers are built with cargo, go, mvn, npm and pip, which fetch the libraries in pinned versions. A peer
    /// whose tools are missing is left out, with a sentence.
    BenchPeers(peers::Options),
    /// Try to break the locks of one topology: many processes, many faults, and a checker of what happened.
    Torture(torture::Options),
    /// Show that the tests catch the bugs of locks: copies of the sources with one bug each.
    Mutants(mutants::Options),
    /// Build the documents as a book, with an installed mdBook.
    Book,
    /// Print the variables that pass the servers' paths to the tests.
    #[command(hide = true)]
    Server(server::Options),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().chore {
        Chore::Test(options) => test::run(&options),
        Chore::Verify(options) => verify::run(&options),
        Chore::Bench(options) => bench::run(&options),
        Chore::BenchPeers(options) => peers::run(&options),
        Chore::Torture(options) => torture::run(&options),
        Chore::Mutants(options) => mutants::run(&options),
        Chore::Book => book::run(),
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
