//! `tenure completions` and `tenure man`: what a shell and a reader want.

use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::exit::Exit;
use crate::voice::print;

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

pub(crate) fn completions(arguments: &Completions, mut command: Command) -> Result<(), ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "tenure", &mut text);
    print(text)
}

pub(crate) fn man(arguments: &Man, mut command: Command) -> Result<(), ExitCode> {
    command.build();
    let page = match &arguments.subcommand {
        None => Some(command),
        Some(name) => command.find_subcommand(name).cloned(),
    };
    let Some(page) = page else {
        return Err(Exit::Usage.because(&"there is no such subcommand: see `tenure --help`"));
    };
    let mut text = Vec::new();
    let rendered = clap_mangen::Man::new(page).render(&mut text);
    rendered.map_err(|error| Exit::CannotWrite.because(&error))?;
    print(text)
}
