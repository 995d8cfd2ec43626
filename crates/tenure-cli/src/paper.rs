//! `tenure completions` and `tenure man`: what a shell and a reader want.

use std::io;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::exit::Exit;

/// Print completions for a shell
#[derive(Args)]
pub(crate) struct Completions {
    shell: Shell,
}

/// Print the manual page, or that of a subcommand
#[derive(Args)]
pub(crate) struct Man {
    /// Such as `run`
    subcommand: Option<String>,
}

pub(crate) fn completions(arguments: &Completions, mut command: Command) -> ExitCode {
    clap_complete::generate(arguments.shell, &mut command, "tenure", &mut io::stdout());
    ExitCode::SUCCESS
}

pub(crate) fn man(arguments: &Man, mut command: Command) -> ExitCode {
    command.build();
    let page = match &arguments.subcommand {
        None => Some(command),
        Some(name) => command.find_subcommand(name).cloned(),
    };
    let Some(page) = page else {
        return Exit::Usage.because(&"there is no such subcommand: see `tenure --help`");
    };
    match clap_mangen::Man::new(page).render(&mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Exit::Unavailable.because(&error),
    }
}
