//! `cargo xtask torture`: starts the program that tries to break the locks, with the servers of the tests.

use clap::Args;

use crate::server::Servers;
use crate::sh;

#[derive(Args)]
pub(crate) struct Options {
    /// Options of the program: `--help` lists them. `check FOLDER` judges a recorded history again.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Options) -> sh::Outcome {
    let servers = Servers::find(false)?;
    let mut cargo = sh::cargo(&[
        "run",
        "--release",
        "--quiet",
        "--package",
        "tenure-torture",
        "--locked",
        "--",
    ]);
    servers.pass_to(&mut cargo);
    if options.arguments.first().is_none_or(|first| first != "check") {
        cargo.arg("run");
    }
    cargo.args(&options.arguments);
    sh::run(cargo)
}
