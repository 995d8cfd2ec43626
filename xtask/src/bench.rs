//! `cargo xtask bench`: passes its arguments to the library's benchmark, which prints the results.

use std::path::PathBuf;

use clap::Args;

use crate::server::Servers;
use crate::sh;

#[derive(Args)]
pub(crate) struct Options {
    /// Run only these benchmarks, separated by commas; --list names them all.
    #[arg(long, value_name = "A,B")]
    only: Option<String>,
    /// Also write the results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// List the benchmarks, and stop.
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(options: &Options) -> sh::Outcome {
    let found = if options.list { None } else { Some((Servers::find(false)?, build_command()?)) };
    let mut cargo =
        sh::cargo(&["bench", "--package", "tenure", "--bench", "benchmarks", "--locked", "--"]);
    if let Some(only) = &options.only {
        cargo.arg("--only").arg(only);
    }
    if let Some(json) = &options.json {
        // Cargo runs a benchmark in its package's folder, not in the caller's.
        let absolute = std::path::absolute(json).map_err(|error| {
            sh::Failure::new(format!("cannot use --json {}: {error}.", json.display()))
        })?;
        cargo.arg("--json").arg(absolute);
    }
    if options.list {
        cargo.arg("--list");
    }
    if let Some((servers, command)) = found {
        servers.pass_to(&mut cargo);
        cargo.env("TENURE_BENCH_COMMAND", command);
    }
    sh::run(cargo)
}

/// The command as it is shipped, which some benchmarks measure.
fn build_command() -> sh::Outcome<PathBuf> {
    sh::run(sh::cargo(&["build", "--release", "--package", "tenure-cli", "--locked"]))?;
    Ok(sh::target_folder().join("release/tenure"))
}
